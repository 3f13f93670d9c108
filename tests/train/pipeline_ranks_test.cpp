// Every schedule computes what one process computes, for any number of micro-batches of any length, empty ones among them.
#include <gtest/gtest.h>

#include "plait/config/enum_names.h"
#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

Config scheduled(ScheduleKind kind, int64_t num_micro_batches) {
  Config config = parity_config(DType::kFloat64, OptimizerKind::kSGD, 0);
  config.train.distributed.schedule = kind;
  config.train.distributed.virtual_pipeline_size = kind == ScheduleKind::kInterleaved1F1B ? 2 : 1;
  config.train.distributed.gradient_accumulation_steps = num_micro_batches;
  return config;
}

// 9 layers: at pp 4 with two chunks a rank, 8 stages of unequal size.
void check_schedules(int64_t dp, int64_t tp, const std::vector<int64_t>& pipeline_sizes, const Samples& samples) {
  RunRecord reference = run_layout(scheduled(ScheduleKind::k1F1B, 1), t0_shape(9), {1, 1, 1}, samples, 2);
  for (int64_t pp : pipeline_sizes)
    for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kInterleaved1F1B, ScheduleKind::kZeroBubbleH1,
                              ScheduleKind::kZeroBubbleH2}) {
      if (kind == ScheduleKind::kInterleaved1F1B && pp == 1) continue;
      for (int64_t m = 1; m <= 2 * pp + 1; ++m)
        expect_same_run(run_layout(scheduled(kind, m), t0_shape(9), grid(dp, tp, pp), samples, 2), reference, 1e-10, 1e-10,
                        cat(enum_word(kind), " pp ", pp, " micro-batches ", m));
    }
}

TEST(Pipeline, SchedulesEqualOneProcess) { check_schedules(1, 1, {1, 2, 3, 4}, d0_samples(61)); }

// Three rows in up to nine micro-batches: most are empty, and on one data rank all but one.
TEST(Pipeline, FewRows) {
  Samples samples = d0_samples(61);
  samples.ids.resize(3);
  samples.classes.resize(3);
  check_schedules(1, 1, {3}, samples);
  check_schedules(2, 1, {2}, samples);
}

// All schedules give one stage's gradients in one order: the same bits.
TEST(Pipeline, SchedulesAreBitEqual) {
  Samples samples = d0_samples(61);
  auto run = [&](ScheduleKind kind, int64_t m) {
    Config config = scheduled(kind, m);
    config.train.dtype = DType::kFloat32;
    return run_layout(config, t0_shape(9), grid(1, 1, 4), samples, 2);
  };
  expect_bit_equal(run(ScheduleKind::kGPipe, 5), run(ScheduleKind::k1F1B, 5), "gpipe and 1f1b");
  expect_bit_equal(run(ScheduleKind::kZeroBubbleH1, 5), run(ScheduleKind::k1F1B, 5), "zb_h1 and 1f1b");
  expect_bit_equal(run(ScheduleKind::kZeroBubbleH2, 5), run(ScheduleKind::k1F1B, 5), "zb_h2 and 1f1b");
}

// Interleaving with every other axis, and with more chunks a rank.
TEST(Pipeline, InterleavedWithOtherAxes) {
  Samples samples = d0_samples(61);
  RunRecord reference = run_layout(scheduled(ScheduleKind::k1F1B, 1), t0_shape(9), {1, 1, 1}, samples, 2);
  for (const auto& [layout, chunks] :
       {std::pair{grid(2, 2, 2), 2}, std::pair{grid(2, 1, 2), 4}, std::pair{grid(1, 2, 3), 3}, std::pair{grid(1, 1, 4), 2}})
    for (int64_t m : {1, 4, 6}) {
      Config config = scheduled(ScheduleKind::kInterleaved1F1B, m);
      config.train.distributed.virtual_pipeline_size = chunks;
      config.train.distributed.sequence_parallel = layout.tp_size > 1;
      expect_same_run(run_layout(config, t0_shape(9), layout, samples, 2), reference, 1e-10, 1e-10,
                      cat(name_of(layout), " chunks ", chunks, " micro-batches ", m));
    }
}

// Layers as the user split them.
TEST(Pipeline, GivenSplit) {
  Samples samples = d0_samples(61);
  Config config = scheduled(ScheduleKind::k1F1B, 3);
  RunRecord reference = run_layout(config, t0_shape(5), {1, 1, 1}, samples, 2);
  for (const auto& split : std::vector<std::vector<int64_t>>{{3, 1, 1}, {1, 1, 3}, {1, 3, 1}}) {
    config.train.distributed.pipeline_layers = split;
    expect_same_run(run_layout(config, t0_shape(5), grid(1, 2, 3), samples, 2), reference, 1e-10, 1e-10, cat("first stage ", split[0]));
  }
}

}  // namespace
}  // namespace plait::testing
