// Compressed messages inside whole training steps: every copy of every parameter stays bit-equal (run_layout checks it), training stays near
// the uncompressed run, overlap changes no bit, and an overflow on one rank is everybody's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

using G = GradientCompression;
using B = BorderCompression;

Config config_for(G algorithm, DType dtype = DType::kFloat32) {
  Config config = parity_config(dtype, OptimizerKind::kAdamW, 0.5);
  config.train.optimizer.lr = 2e-3;
  config.train.distributed.gradient_accumulation_steps = 2;
  config.train.comm.compression.algorithm = algorithm;
  config.train.comm.compression.threshold_bytes = 0;
  config.train.comm.compression.rank = 2;
  config.train.comm.compression.ratio = 0.1;
  return config;
}

// Gradients of the first step against the uncompressed ones, as one vector.
double gradient_error(const RunRecord& run, const RunRecord& reference) {
  double difference = 0, size = 0;
  for (const auto& [name, values] : reference.first_gradients) {
    const auto& other = run.first_gradients.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      difference += (other[i] - values[i]) * (other[i] - values[i]);
      size += values[i] * values[i];
    }
  }
  return std::sqrt(difference / size);
}

TEST(CompressedTraining, CopiesStayEqualBesideTensorAndPipelineRanks) {
  Samples samples = d0_samples(61);
  RunRecord reference = run_layout(config_for(G::kNone), t0_shape(4), grid(1, 1, 1), samples, 3);
  const std::vector<std::pair<G, double>> bounds = {{G::kBFloat16, 0.01}, {G::kFloat16, 2e-3}, {G::kFloat8, 0.08},
                                                    {G::kPowerSGD, 0.95}, {G::kTopK, 0.95},    {G::kNccl, 0.01}};
  for (const auto& [algorithm, bound] : bounds)
    for (const MeshLayout& layout : {grid(2, 1, 1), grid(3, 2, 1), grid(2, 2, 2), grid(2, 4, 1)}) {
      Config config = config_for(algorithm);
      config.train.distributed.sequence_parallel = layout.tp_size == 4;
      Hooks hooks;
      hooks.after_step = [&](Mesh& mesh, ParallelModel& model, TrainStep&, int64_t, const StepResult& result) {
        EXPECT_TRUE(model.reducer->compresses()) << name_of(layout);
        ASSERT_TRUE(result.compression.has_value());
        EXPECT_GT(result.compression->bytes_saved, 0) << name_of(layout);
        ASSERT_TRUE(result.compression->error.has_value());
        EXPECT_GT(*result.compression->error, 0);
        EXPECT_LE(*result.compression->error, bound);
      };
      RunRecord run = run_layout(config, t0_shape(4), layout, samples, 3, hooks);
      const std::string what = cat(enum_word(algorithm), " ", name_of(layout));
      EXPECT_NEAR(run.losses[0], reference.losses[0], 1e-5) << what;
      const bool is_partial = algorithm == G::kPowerSGD || algorithm == G::kTopK;  // they pass a part of a gradient on later
      EXPECT_NEAR(run.losses[2], reference.losses[2], (is_partial ? 0.12 : 0.01) * reference.losses[2]) << what;
      EXPECT_LT(run.losses[2], run.losses[0]) << what;
      EXPECT_LE(gradient_error(run, reference), bound) << what;
      EXPECT_GT(gradient_error(run, reference), 1e-5) << what << ": nothing was compressed";
    }
}

TEST(CompressedTraining, NoneIsAsBefore) {
  Samples samples = d0_samples(61);
  Config none = config_for(G::kNone), above = config_for(G::kFloat8);
  above.train.comm.compression.threshold_bytes = int64_t{1} << 30;
  RunRecord a = run_layout(none, t0_shape(2), grid(2, 1, 1), samples, 2), b = run_layout(above, t0_shape(2), grid(2, 1, 1), samples, 2);
  expect_bit_equal(a, b, "a threshold above every bucket");
}

TEST(CompressedTraining, OverlapAndStyleChangeNoBit) {
  Samples samples = d0_samples(61);
  for (G algorithm : {G::kFloat8, G::kPowerSGD, G::kTopK}) {
    RunRecord first;
    for (bool overlap : {true, false})
      for (CommStyle style : {CommStyle::kCollective, CommStyle::kP2P}) {
        Config config = config_for(algorithm);
        config.train.distributed.overlap_grad_reduce = overlap;
        config.train.comm.priority.data_parallel = style;
        RunRecord run = run_layout(config, t0_shape(2), grid(3, 1, 2), samples, 2);
        if (first.losses.empty()) first = run;
        expect_bit_equal(run, first, cat(enum_word(algorithm), " overlap ", overlap, " ", enum_word(style)));
      }
  }
}

// Sixty steps on twelve rows: the types that round learn as the exact run does. The low-rank and the sparse one pass a part of each gradient on
// later, and are a few steps behind.
TEST(CompressedTraining, LearnsAsWell) {
  Samples samples = d0_samples(61);
  auto losses = [&](G algorithm) {
    Config config = config_for(algorithm);
    config.train.comm.compression.rank = 4;
    config.train.comm.compression.ratio = 0.2;
    return run_layout(config, t0b_shape(1), grid(2, 1, 1), samples, 60).losses;
  };
  const std::vector<double> exact = losses(G::kNone);
  const double gain = exact.front() - exact.back();
  for (G algorithm : {G::kBFloat16, G::kFloat16, G::kFloat8, G::kPowerSGD, G::kTopK, G::kNccl}) {
    const double own = exact.front() - losses(algorithm).back();
    EXPECT_GE(own, (algorithm == G::kPowerSGD || algorithm == G::kTopK ? 0.7 : 0.98) * gain) << enum_word(algorithm) << " of " << gain;
  }
}

TEST(CompressedTraining, OverflowOnOneRankSkipsTheStepEverywhere) {
  Samples samples = d0_samples(61);
  for (G algorithm : {G::kBFloat16, G::kFloat16, G::kFloat8, G::kPowerSGD, G::kTopK, G::kNccl})
    for (double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      const MeshLayout layout = grid(2, 2, 1);
      Config config = config_for(algorithm, DType::kFloat16);
      config.train.loss_scale.init_scale = 1024;
      std::vector<std::vector<at::Tensor>> states(4);
      Hooks hooks;
      hooks.local_gradients = [&](const Coordinate& c, int64_t step, ParameterStore& store) {
        if (step != 1 || layout.rank_of(c) != 3) return;
        store.parameters()[0]->gradient.view({-1})[7].fill_(value);
      };
      hooks.after_step = [&](Mesh& mesh, ParallelModel& model, TrainStep&, int64_t step, const StepResult& result) {
        EXPECT_EQ(result.skipped, step == 1) << enum_word(algorithm);
        auto& mine = states[static_cast<size_t>(mesh.rank())];
        auto now = model.reducer->compression_state();
        if (step == 1) {
          for (size_t i = 0; i < now.size(); ++i)
            EXPECT_TRUE(at::equal(now[i].tensor, mine[i])) << enum_word(algorithm) << " " << now[i].name;
        }
        mine.clear();
        for (const auto& t : now) {
          EXPECT_TRUE(t.tensor.isfinite().all().item<bool>()) << t.name;
          mine.push_back(t.tensor.clone());
        }
      };
      RunRecord run = run_layout(config, t0_shape(2), layout, samples, 4, hooks);
      EXPECT_EQ(run.skipped, (std::vector<bool>{false, true, false, false})) << enum_word(algorithm);
      EXPECT_EQ(run.loss_scales, (std::vector<double>{1024, 1024, 512, 512})) << enum_word(algorithm);
    }
}

TEST(CompressedTraining, PipelineBorders) {
  Samples samples = d0_samples(61);
  auto run = [&](B border, DType dtype, const MeshLayout& layout, ScheduleKind schedule, double* saved = nullptr) {
    Config config = config_for(G::kNone, dtype);
    config.train.comm.compression.pipeline = border;
    config.train.distributed.schedule = schedule;
    config.train.distributed.virtual_pipeline_size = schedule == ScheduleKind::kInterleaved1F1B ? 2 : 1;
    config.train.distributed.sequence_parallel = layout.tp_size > 1;
    Hooks hooks;
    std::mutex mutex;
    hooks.after_step = [&](Mesh&, ParallelModel&, TrainStep&, int64_t, const StepResult& result) {
      EXPECT_EQ(result.compression.has_value(), border != B::kNone);
      if (!result.compression) return;
      EXPECT_FALSE(result.compression->error.has_value());
      std::lock_guard lock(mutex);
      if (saved) *saved = result.compression->bytes_saved / (result.compression->bytes_saved + result.compression->bytes_sent);
    };
    return run_layout(config, t0_shape(4), layout, samples, 2, hooks);
  };
  const std::vector<std::pair<B, double>> bounds = {{B::kBFloat16, 0.03}, {B::kFloat16, 4e-3}, {B::kFloat8, 0.3}};
  for (ScheduleKind schedule : {ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1, ScheduleKind::kInterleaved1F1B})
    for (const MeshLayout& layout : {grid(1, 1, 2), grid(1, 2, 2)}) {
      RunRecord exact = run(B::kNone, DType::kFloat32, layout, schedule);
      for (const auto& [border, bound] : bounds) {
        double saved = 0;
        RunRecord near = run(border, DType::kFloat32, layout, schedule, &saved);
        const std::string what = cat(enum_word(border), " ", name_of(layout), " ", enum_word(schedule));
        EXPECT_NEAR(near.losses[0], exact.losses[0], bound * exact.losses[0]) << what;
        EXPECT_LE(gradient_error(near, exact), bound) << what;
        EXPECT_GT(gradient_error(near, exact), 1e-5) << what << ": nothing was compressed";
        EXPECT_NEAR(saved, border == B::kFloat8 ? 0.73 : 0.49, 0.03) << what;  // one scale a row of 24
      }
    }
  // Borders are of that type already: not a bit differs.
  for (auto [border, dtype] : {std::pair{B::kBFloat16, DType::kBFloat16}, {B::kFloat16, DType::kFloat16}})
    expect_bit_equal(run(border, dtype, grid(1, 1, 2), ScheduleKind::k1F1B), run(B::kNone, dtype, grid(1, 1, 2), ScheduleKind::k1F1B),
                     cat(enum_word(border), " borders of ", enum_word(dtype)));
}

}  // namespace
}  // namespace plait::testing
