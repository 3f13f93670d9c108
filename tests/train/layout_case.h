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
#include "plait/tensor/parameter.h"

namespace plait::testing {

struct Samples {
  std::vector<std::vector<int32_t>> ids;
  std::vector<int64_t> classes;  // classification
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
  FullTensors first_gradients;  // after all reductions, step 1
  FullTensors weights;          // after the last step
};

// What a test may do on a rank: called with the rank's mesh coordinate and step before the step's reductions.
struct Hooks {
  std::function<void(const Coordinate&, int64_t step, ParameterStore&)> local_gradients;
};

// Trains `num_steps` steps, each on all samples. Every copy of a parameter (gradient, weight) is checked to be bit-equal to the others.
RunRecord run_layout(const Config& config, const ModelShape& shape, const MeshLayout& layout, const Samples& samples, int num_steps,
                     const Hooks& hooks = {});

// Largest |a - b| / largest |b| over a tensor, the worst over all tensors.
double worst_difference(const FullTensors& a, const FullTensors& b, std::string* where = nullptr);
void expect_same_run(const RunRecord& run, const RunRecord& reference, double bound, double weight_bound, const std::string& what);

// The layouts of the master invariant.
std::vector<MeshLayout> lay();

}  // namespace plait::testing
