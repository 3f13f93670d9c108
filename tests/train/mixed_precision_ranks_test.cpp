// Low precision: overflow is everybody's business, masters are the truth, and no layout is less exact than one process.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "plait/base/error.h"
#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

Config half(double init_scale = 1024) {
  Config config = parity_config(DType::kFloat16, OptimizerKind::kAdamW, 0.5);
  config.train.optimizer.lr = 1e-3;
  config.train.loss_scale.init_scale = init_scale;
  config.train.distributed.gradient_accumulation_steps = 2;
  return config;
}

// Everything a skipped step must leave alone.
struct Frozen {
  at::Tensor weights, masters;
  std::vector<at::Tensor> moments;
  int64_t num_updates = 0;
};
Frozen freeze(const ParallelModel& model) {
  Frozen f{model.store.flat_weights().clone(), model.store.flat_masters().clone(), {}, model.optimizer->num_updates()};
  for (const auto& state : model.optimizer->state()) f.moments.push_back(state.flat.clone());
  return f;
}
void expect_same(const Frozen& a, const Frozen& b, const std::string& what) {
  EXPECT_TRUE(a.weights.equal(b.weights)) << what;
  EXPECT_TRUE(a.masters.equal(b.masters)) << what;
  for (size_t i = 0; i < a.moments.size(); ++i) EXPECT_TRUE(a.moments[i].equal(b.moments[i])) << what;
  EXPECT_EQ(a.num_updates, b.num_updates) << what;
}

// Step 2 of 4 overflows on one rank, in one parameter.
void check_overflow(const MeshLayout& layout, int64_t bad_rank, bool last_parameter, double value) {
  std::string what = cat(name_of(layout), " rank ", bad_rank, last_parameter ? " last" : " first", " parameter ", value);
  std::vector<Frozen> before(static_cast<size_t>(layout.world_size()));
  Hooks hooks;
  hooks.local_gradients = [&](const Coordinate& c, int64_t step, ParameterStore& store) {
    if (step != 1 || layout.rank_of(c) != bad_rank) return;
    const auto& parameters = store.parameters();
    Parameter& p = last_parameter ? *parameters.back() : *parameters.front();
    p.gradient.view({-1})[p.numel - 1].fill_(value);
  };
  hooks.after_step = [&](Mesh& mesh, ParallelModel& model, TrainStep& train, int64_t step, const StepResult& result) {
    Frozen& mine = before[static_cast<size_t>(mesh.rank())];
    EXPECT_EQ(result.skipped, step == 1) << what;
    if (step == 1) expect_same(freeze(model), mine, what);
    if (step == 2) {
      EXPECT_FALSE(model.store.flat_masters().equal(mine.masters)) << what << ": the next step moved nothing";
    }
    EXPECT_EQ(model.optimizer->num_updates(), step == 0 ? 1 : step) << what;
    EXPECT_EQ(train.loss_scaler().scale(), step == 0 ? 1024 : 512) << what;
    EXPECT_TRUE(model.store.flat_weights().equal(model.store.flat_masters().to(at::kHalf)))
        << what << ": weights are not the rounded masters";
    if (step == 0) mine = freeze(model);
  };
  RunRecord run = run_layout(half(), t0_shape(2), layout, d0_samples(61), 4, hooks);
  EXPECT_EQ(run.skipped, (std::vector<bool>{false, true, false, false})) << what;
  EXPECT_EQ(run.loss_scales, (std::vector<double>{1024, 1024, 512, 512})) << what;
}

TEST(MixedPrecision, OverflowOnOneRankSkipsTheStepEverywhere) {
  double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& layout : {grid(1, 1, 1), grid(2, 1, 1), grid(1, 2, 1), grid(1, 4, 1), grid(1, 1, 2), grid(2, 2, 2)})
    for (int64_t rank = 0; rank < layout.world_size(); ++rank)
      for (bool last : {false, true}) check_overflow(layout, rank, last, (rank + last) % 2 == 0 ? infinity : nan);
}

// Real overflow: a scale that no half can carry halves step by step until it can; the same in every layout.
TEST(MixedPrecision, ScaleFallsUntilGradientsFit) {
  std::optional<std::vector<double>> scales;
  for (const auto& layout : {grid(1, 1, 1), grid(2, 1, 1), grid(1, 1, 2), grid(2, 2, 2)}) {
    RunRecord run = run_layout(half(16777216.0), t0_shape(2), layout, d0_samples(61), 8);
    EXPECT_TRUE(run.skipped[0]) << name_of(layout);
    EXPECT_FALSE(run.skipped[7]) << name_of(layout);
    for (size_t i = 0; i + 1 < run.skipped.size(); ++i)
      EXPECT_EQ(run.loss_scales[i + 1], run.loss_scales[i] * (run.skipped[i] ? 0.5 : 1.0));
    // Partial sums differ from layout to layout, so the first scale that fits may differ by one halving.
    if (!scales) scales = run.loss_scales;
    EXPECT_LE(std::abs(std::log2(run.loss_scales[7] / (*scales)[7])), 1.0) << name_of(layout);
  }
}

// Types without a loss scale stop instead, on every rank, before the update.
TEST(MixedPrecision, NotFiniteWithoutScaleStops) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    Config config = parity_config(dtype, OptimizerKind::kAdamW, 0.5);
    Hooks hooks;
    hooks.local_gradients = [&](const Coordinate& c, int64_t step, ParameterStore& store) {
      if (step == 1 && c.dp == 1 && c.tp == 0 && c.pp == 1) store.flat_gradients()[0].fill_(std::numeric_limits<double>::quiet_NaN());
    };
    try {
      run_layout(config, t0_shape(2), grid(2, 2, 2), d0_samples(61), 3, hooks);
      ADD_FAILURE() << "went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kNonFinite) << error.what();
      EXPECT_NE(std::string(error.what()).find("step 2"), std::string::npos) << error.what();
    }
  }
}

// The scale leaves the update: SGD without clipping, where a factor cannot hide, moves as fp32 does at any scale.
TEST(MixedPrecision, LossScaleLeavesTheUpdate) {
  auto config_of = [](DType dtype, double scale) {
    Config config = parity_config(dtype, OptimizerKind::kSGD, 0);
    config.train.loss_scale.init_scale = scale;
    return config;
  };
  RunRecord exact = run_layout(config_of(DType::kFloat32, 1), t0_shape(2), {1, 1, 1}, d0_samples(61), 4);
  for (double scale : {1.0, 64.0, 1024.0})
    for (const auto& layout : {grid(1, 1, 1), grid(2, 2, 1)}) {
      RunRecord run = run_layout(config_of(DType::kFloat16, scale), t0_shape(2), layout, d0_samples(61), 4);
      std::string what = cat(name_of(layout), " scale ", scale);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(run.losses[i], exact.losses[i], 3e-3 * exact.losses[i]) << what;
        EXPECT_NEAR(run.norms[i], exact.norms[i], 1e-2 * exact.norms[i]) << what;
      }
      EXPECT_LE(worst_difference(run.weights, exact.weights), 3e-3) << what;
    }
}

struct Band {
  double loss = 0, gradient = 0;
};
Band distance(const RunRecord& run, const RunRecord& exact) {
  Band band;
  for (size_t i = 0; i < run.losses.size(); ++i)
    band.loss = std::max(band.loss, std::abs(run.losses[i] - exact.losses[i]) / exact.losses[i]);
  band.gradient = worst_difference(run.first_gradients, exact.first_gradients);
  return band;
}

// bf16 and fp16 against fp32: stated bands, and no layout needs more than twice what one process needs.
TEST(MixedPrecision, NoLayoutIsLessExact) {
  for (auto [dtype, loss_band] : {std::pair{DType::kBFloat16, 5e-3}, std::pair{DType::kFloat16, 5e-4}}) {
    auto config_of = [&](DType type) {
      Config config = half();
      config.train.dtype = type;
      config.train.distributed.gradient_accumulation_steps = 1;
      return config;
    };
    RunRecord exact = run_layout(config_of(DType::kFloat32), t0_shape(4), {1, 1, 1}, d0_samples(61), 8);
    Band alone = distance(run_layout(config_of(dtype), t0_shape(4), {1, 1, 1}, d0_samples(61), 8), exact);
    EXPECT_LE(alone.loss, loss_band);
    RecordProperty(cat("loss_band_", static_cast<int>(dtype)), cat(alone.loss));
    RecordProperty(cat("gradient_band_", static_cast<int>(dtype)), cat(alone.gradient));
    for (const auto& layout : {grid(4, 1, 1), grid(1, 2, 1), grid(1, 8, 1), grid(1, 1, 4), grid(2, 2, 2)})
      for (bool sequence : {false, true}) {
        if (sequence && layout.tp_size == 1) continue;
        Config config = config_of(dtype);
        config.train.distributed.sequence_parallel = sequence;
        config.train.distributed.gradient_accumulation_steps = 2;
        Band band = distance(run_layout(config, t0_shape(4), layout, d0_samples(61), 8), exact);
        std::string what = cat(name_of(layout), sequence ? " sequence parallel" : "", dtype == DType::kFloat16 ? " fp16" : " bf16");
        EXPECT_LE(band.loss, 2 * alone.loss) << what;
        EXPECT_LE(band.gradient, 2 * alone.gradient) << what;
      }
  }
}

}  // namespace
}  // namespace plait::testing
