// One training run in one layout on thread ranks, and what comes of it as FULL tensors: the instrument of the parity tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/model_shape.h"
#include "plait/data/dataset.h"
#include "plait/plan/mesh_layout.h"
#include "plait/train/train_step.h"

namespace plait::testing {

struct Samples {
  std::vector<std::vector<int32_t>> ids;
  std::vector<int64_t> classes;                            // classification; empty = the rows have none
  std::vector<std::vector<int32_t>> masks, types, labels;  // a row each, or empty: as TokenRow's
  std::vector<std::vector<int32_t>> document_starts;       // a row each, or empty
  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};
// D0: 12 samples of unequal length, 123 tokens, 111 targets.
Samples d0_samples(int64_t vocab_size);

// T0: grouped KV heads, rotary, RMSNorm, gated FFN, tied. T0b: learned positions, LayerNorm, biases. Both awkward on purpose.
ModelShape t0_shape(int64_t num_layers = 5);
ModelShape t0b_shape(int64_t num_layers = 5);
ModelShape tiny_bert_shape(int64_t num_layers = 5);

Config parity_config(DType dtype, OptimizerKind optimizer, double clip);

using FullTensors = std::map<std::string, std::vector<double>>;

struct RunRecord {
  std::vector<double> losses, norms;
  std::vector<bool> skipped;
  std::vector<double> loss_scales;
  FullTensors first_gradients;  // after all reductions, without the loss scale, step 1
  FullTensors weights;          // after the last step
};

// What a test may do on a rank, on every rank at the same place. Empty: nothing.
struct Hooks {
  std::function<void(Mesh&, ParallelModel&)> prepare;  // after construction, before the first step: loading weights
  // Before the step's reductions, with this rank's own part of the gradients.
  std::function<void(const Coordinate&, int64_t step, ParameterStore&)> local_gradients;
  std::function<void(Mesh&, ParallelModel&, TrainStep&, int64_t step, const StepResult&)> after_step;
  std::function<const Samples&(int64_t step)> samples;  // instead of the same samples in every step
  bool all_random = true;                               // norms and biases too; they hide missing syncs else
};

// Full tensors in Hugging Face's layout (GPT-2's matrices are stored transposed here).
// Trains `num_steps` steps, each on all samples. Every copy of a parameter (gradient, weight) is checked to be bit-equal to the others.
RunRecord run_layout(const Config& config, const ModelShape& shape, const MeshLayout& layout, const Samples& samples, int num_steps,
                     const Hooks& hooks = {});

// Largest |a - b| / largest |b| over a tensor, the worst over all tensors.
double worst_difference(const FullTensors& a, const FullTensors& b, std::string* where = nullptr);
// Norm of all tensors laid end to end; p = 2 or infinity.
double full_norm(const FullTensors& tensors, double p = 2.0);
void expect_bit_equal(const RunRecord& a, const RunRecord& b, const std::string& what);
void expect_same_run(const RunRecord& run, const RunRecord& reference, double bound, double weight_bound, const std::string& what);

// This data rank's micro-batches of one step on `samples`, as the trainer would cut them.
std::vector<MicroBatch> own_micro_batches(const Samples& samples, const Config& config, const Mesh& mesh);
int64_t count_all_targets(const Samples& samples, Task task);

// The layouts of the master invariant.
std::vector<MeshLayout> lay();
MeshLayout grid(int64_t dp, int64_t tp, int64_t pp);
std::string name_of(const MeshLayout& layout);  // "dp2-tp1-pp4"

}  // namespace plait::testing
