// The master invariant: every layout computes what one process computes.
// Left out here to stay within the time of the label "ranks" (ctest -L '^ranks$'), run by parity_ranks_full_test.cpp (label
// "ranks-full"): T0b and BERT over all layouts, AdamW with and without clipping over all layouts, fp32 with 4 steps, without sequence
// parallelism and with AdamW, accumulation counts other than 2, infinity norm over all layouts.
#include <gtest/gtest.h>

#include <limits>

#include "tests/train/lay_check.h"

namespace plait::testing {
namespace {

// A factor of each size that could be left behind shows: unequal degrees and a 3.
std::vector<MeshLayout> few() {
  return {grid(2, 1, 1), grid(1, 4, 1), grid(1, 1, 4), grid(4, 1, 2), grid(1, 2, 4), grid(2, 2, 2), grid(3, 1, 2)};
}

Config sgd(DType dtype) { return parity_config(dtype, OptimizerKind::kSGD, 0); }

TEST(Parity, T0Fp64Sgd) { check_lay({}, sgd(DType::kFloat64), 1e-10, 1e-10); }

TEST(Parity, T0Fp32Sgd) { check_lay({.num_steps = 2, .sequence_parallel = true}, sgd(DType::kFloat32), 1e-5, 1e-5); }

TEST(Parity, T0Fp64AdamClippedFewLayouts) {
  check_lay({.layouts = few()}, parity_config(DType::kFloat64, OptimizerKind::kAdamW, 0.5), 1e-10, 1e-8);
}
// Decay that is added to the gradient, after clipping.
TEST(Parity, T0Fp64CoupledAdamClipped) {
  check_lay({.layouts = {grid(2, 1, 1), grid(1, 4, 1), grid(2, 2, 2), grid(3, 1, 2)}},
            parity_config(DType::kFloat64, OptimizerKind::kAdam, 0.5), 1e-10, 1e-8);
}
TEST(Parity, T0bFp64FewLayouts) { check_lay({.shape = t0b_shape, .layouts = few()}, sgd(DType::kFloat64), 1e-10, 1e-10); }
TEST(Parity, BertFp64FewLayouts) {
  check_lay({.shape = tiny_bert_shape, .task = Task::kTextClassification, .layouts = few()}, sgd(DType::kFloat64), 1e-10, 1e-10);
}

// What qwen2, mistral and llama 3 add: biases on grouped heads (copied over tensor ranks, as the heads are), a window from one layer on,
// scaled rotary frequencies, an untied head, the attention scale given.
ModelShape window_shape(int64_t num_layers) {
  ModelShape s = t0_shape(num_layers);
  s.model_type = "qwen2";
  s.qkv_bias = true;
  s.tied_embeddings = false;
  s.sliding_window = 5;
  s.sliding_window_first_layer = 2;
  s.attention_scale = 0.4;
  s.rope.scaling = RopeScaling::kLlama3;
  s.rope.factor = 4;
  s.rope.original_max_positions = 12;
  return s;
}
TEST(Parity, WindowAndBiasesOnGroupedHeads) {
  std::vector<MeshLayout> layouts = few();
  layouts.push_back(grid(1, 8, 1));
  check_lay({.shape = window_shape, .layouts = layouts}, sgd(DType::kFloat64), 1e-10, 1e-10);
}

// Momentum and label smoothing, which no other case has.
TEST(Parity, MomentumAndSmoothing) {
  Config config = sgd(DType::kFloat64);
  config.train.optimizer.momentum = 0.9;
  config.train.label_smoothing = 0.1;
  config.train.norm_type = std::numeric_limits<double>::infinity();
  config.train.clip_grad = 0.05;
  check_lay({.layouts = {grid(2, 2, 1), grid(1, 2, 2)}}, config, 1e-10, 1e-10);
}

// Nothing but what the shape rules out is refused: five layers do not fill eight stages.
TEST(Parity, ExactSetOfRefusals) {
  std::set<std::string> refused;
  Samples samples = d0_samples(61);
  for (const auto& layout : lay()) {
    if (layout.world_size() < 8) continue;  // the smaller ones run above
    try {
      run_layout(sgd(DType::kFloat64), t0_shape(5), layout, samples, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
      refused.insert(name_of(layout));
    }
  }
  EXPECT_EQ(refused, std::set<std::string>{"dp1-tp1-pp8"});
}

}  // namespace
}  // namespace plait::testing
