#include "plait/optim/lr_scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "plait/base/error.h"

namespace plait {
namespace {

LrSchedulerConfig config_of(LrSchedulerKind type, int64_t warmup_steps, double warmup_ratio = 0.0) {
  LrSchedulerConfig config;
  config.type = type;
  config.warmup_steps = warmup_steps;
  config.warmup_ratio = warmup_ratio;
  return config;
}

std::vector<double> series(const LrSchedulerConfig& config, double lr, int64_t total) {
  LrScheduler scheduler(config, lr, total);
  std::vector<double> values;
  for (int64_t k = 0; k < total; ++k) values.push_back(scheduler.lr(k));
  return values;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-15) << "update " << i;
}

// Worked out by hand from the formula that Hugging Face documents for get_scheduler, lr 1.
TEST(LrScheduler, TableOfUpdates) {
  const double c1 = 0.5 * (1.0 + std::cos(M_PI / 4)), c3 = 0.5 * (1.0 + std::cos(3 * M_PI / 4));
  expect_near(series(config_of(LrSchedulerKind::kLinear, 2), 1.0, 6), {0, 0.5, 1, 0.75, 0.5, 0.25});
  expect_near(series(config_of(LrSchedulerKind::kCosine, 2), 1.0, 6), {0, 0.5, 1, c1, 0.5, c3});
  expect_near(series(config_of(LrSchedulerKind::kConstant, 2), 1.0, 6), {0, 0.5, 1, 1, 1, 1});
  // No warm-up: the first update has the full rate.
  expect_near(series(config_of(LrSchedulerKind::kLinear, 0), 1.0, 4), {1, 0.75, 0.5, 0.25});
  expect_near(series(config_of(LrSchedulerKind::kCosine, 0), 1.0, 4), {1, c1, 0.5, c3});
  expect_near(series(config_of(LrSchedulerKind::kConstant, 0), 1.0, 3), {1, 1, 1});
}

TEST(LrScheduler, OneUpdateAndWarmupOnly) {
  for (LrSchedulerKind type : {LrSchedulerKind::kLinear, LrSchedulerKind::kCosine, LrSchedulerKind::kConstant}) {
    expect_near(series(config_of(type, 0), 2.0, 1), {2.0});
    expect_near(series(config_of(type, 1), 2.0, 1), {0.0});
    expect_near(series(config_of(type, 0, 0.1), 2.0, 1), {0.0});  // w = ceil(0.1) = 1
    expect_near(series(config_of(type, 4), 1.0, 4), {0, 0.25, 0.5, 0.75});
    expect_near(series(config_of(type, 8), 1.0, 4), {0, 0.125, 0.25, 0.375});  // warm-up longer than the run
    EXPECT_TRUE(std::isfinite(LrScheduler(config_of(type, 4), 1.0, 4).lr(4)));
    EXPECT_TRUE(std::isfinite(LrScheduler(config_of(type, 8), 1.0, 4).lr(9)));
  }
}

TEST(LrScheduler, RatioIsRoundedUpAndStepsWin) {
  EXPECT_EQ(LrScheduler(config_of(LrSchedulerKind::kLinear, 0, 0.1), 1.0, 150).warmup_updates(), 15);
  EXPECT_EQ(LrScheduler(config_of(LrSchedulerKind::kLinear, 0, 0.1), 1.0, 151).warmup_updates(), 16);
  EXPECT_EQ(LrScheduler(config_of(LrSchedulerKind::kLinear, 0, 1.0), 1.0, 7).warmup_updates(), 7);
  EXPECT_EQ(LrScheduler(config_of(LrSchedulerKind::kLinear, 3, 0.5), 1.0, 100).warmup_updates(), 3);
}

TEST(LrScheduler, EndsAtZeroAndStaysThere) {
  EXPECT_EQ(LrScheduler(config_of(LrSchedulerKind::kLinear, 1), 1.0, 5).lr(5), 0.0);
  EXPECT_EQ(LrScheduler(config_of(LrSchedulerKind::kLinear, 1), 1.0, 5).lr(50), 0.0);
  EXPECT_NEAR(LrScheduler(config_of(LrSchedulerKind::kCosine, 1), 1.0, 5).lr(50), 0.0, 1e-16);
}

LrSchedulerConfig torch_config(LrSchedulerKind type, int64_t total_periods = 0) {
  LrSchedulerConfig config;
  config.type = type;
  config.total_periods = total_periods;
  return config;
}

// The learning rates that torch 2.11's classes give to 8 updates, lr 0.5.
TEST(LrScheduler, TableOfTorch) {
  LrSchedulerConfig step = torch_config(LrSchedulerKind::kStep), marks = torch_config(LrSchedulerKind::kMultiStep);
  step.step_size = 3;
  marks.milestones = {5, 2, 5};  // in any order; twice counts twice
  marks.gamma = 0.3;
  LrSchedulerConfig exponential = torch_config(LrSchedulerKind::kExponential), power = torch_config(LrSchedulerKind::kPolynomial, 6);
  exponential.gamma = 0.9;
  power.power = 2;
  LrSchedulerConfig ramp = torch_config(LrSchedulerKind::kRamp, 5), noam = torch_config(LrSchedulerKind::kInverseSqrt);
  ramp.start_factor = 0.25;
  ramp.end_factor = 0.75;
  noam.warmup_steps = 4;
  expect_near(series(step, 0.5, 8), {0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005});
  expect_near(series(marks, 0.5, 8), {0.5, 0.5, 0.15, 0.15, 0.15, 0.0135, 0.0135, 0.0135});
  expect_near(series(exponential, 0.5, 8), {0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245, 0.2657205, 0.23914845});
  expect_near(series(power, 0.5, 8),
              {0.5, 0.34722222222222227, 0.2222222222222223, 0.12500000000000003, 0.05555555555555558, 0.013888888888888886, 0.0, 0.0});
  expect_near(series(ramp, 0.5, 8), {0.125, 0.175, 0.225, 0.275, 0.325, 0.375, 0.375, 0.375});
  expect_near(series(noam, 0.5, 8),
              {0.0625, 0.125, 0.1875, 0.25, 0.22360679774997896, 0.2041241452319315, 0.18898223650461363, 0.1767766952966369});
  LrSchedulerConfig cosine = torch_config(LrSchedulerKind::kCosine, 6);
  cosine.min_lr = 0.1;
  // torch rises again after T_max (its closed form is a cosine); here the end stays.
  expect_near(series(cosine, 0.5, 8), {0.5, 0.47320508075688783, 0.4, 0.3, 0.2, 0.1267949192431123, 0.1, 0.1});
  // ConstantLR(factor 0.25, total_iters 3) is a constant after a constant warm-up.
  LrSchedulerConfig constant = config_of(LrSchedulerKind::kConstant, 3);
  constant.warmup = WarmupKind::kConstant;
  constant.warmup_start_factor = 0.25;
  expect_near(series(constant, 0.5, 6), {0.125, 0.125, 0.125, 0.5, 0.5, 0.5});
}

// transformers 5.24, get_scheduler("polynomial"), 2 warm-up steps of 6, lr 0.5.
TEST(LrScheduler, PolynomialOfHuggingFace) {
  LrSchedulerConfig config = config_of(LrSchedulerKind::kPolynomial, 2);
  config.min_lr = 1e-7;
  expect_near(series(config, 0.5, 6), {0.0, 0.25, 0.5, 0.375000025, 0.25000005, 0.125000075});
}

// ModelScope's LinearWarmup, ConstantWarmup and ExponentialWarmup (warmup_iters 4, warmup_ratio 0.1) over StepLR(3): the schedule counts
// from the first update and the warm-up multiplies it.
TEST(LrScheduler, WarmupsOfModelScope) {
  LrSchedulerConfig config = config_of(LrSchedulerKind::kStep, 4);
  config.step_size = 3;
  config.warmup_start_factor = 0.1;
  expect_near(series(config, 0.5, 7), {0.05, 0.1625, 0.275, 0.03875, 0.05, 0.05, 0.005});
  config.warmup = WarmupKind::kConstant;
  expect_near(series(config, 0.5, 7), {0.05, 0.05, 0.05, 0.005, 0.05, 0.05, 0.005});
  config.warmup = WarmupKind::kExponential;
  expect_near(series(config, 0.5, 7),
              {0.05, 0.5 * std::pow(0.1, 0.75), 0.5 * std::pow(0.1, 0.5), 0.05 * std::pow(0.1, 0.25), 0.05, 0.05, 0.005});
}

// A schedule that lasts the run begins at the warm-up's end; with a length of its own it counts from the first update.
TEST(LrScheduler, WhereAScheduleBegins) {
  LrSchedulerConfig config = config_of(LrSchedulerKind::kLinear, 2);
  config.warmup_start_factor = 0.5;
  expect_near(series(config, 1.0, 6), {0.5, 0.75, 1, 0.75, 0.5, 0.25});
  config.total_periods = 4;
  expect_near(series(config, 1.0, 6), {0.5, 0.75 * 0.75, 0.5, 0.25, 0, 0});
}

TEST(LrScheduler, ByEpoch) {
  LrSchedulerConfig step = torch_config(LrSchedulerKind::kStep);
  step.by_epoch = true;
  step.gamma = 0.5;
  auto by_epoch = [](const LrSchedulerConfig& config, int64_t total, int64_t epoch) {
    LrScheduler scheduler(config, 1.0, total, epoch);
    std::vector<double> values;
    for (int64_t k = 0; k < total; ++k) values.push_back(scheduler.lr(k));
    return values;
  };
  expect_near(by_epoch(step, 7, 3), {1, 1, 1, 0.5, 0.5, 0.5, 0.25});
  // Without a length of its own: as many epochs as the run has, a begun one counts.
  LrSchedulerConfig linear = torch_config(LrSchedulerKind::kLinear);
  linear.by_epoch = true;
  expect_near(by_epoch(linear, 7, 2), {1, 1, 0.75, 0.75, 0.5, 0.5, 0.25});
  linear.warmup_steps = 2;  // always updates
  expect_near(by_epoch(linear, 7, 2), {0, 0.5, 0.75, 0.75, 0.5, 0.5, 0.25});
  EXPECT_THROW(LrScheduler(linear, 1.0, 7), Error);
}

TEST(LrScheduler, BadSettings) {
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, 0), 1.0, 0), Error);
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, -1), 1.0, 5), Error);
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, 0, 1.5), 1.0, 5), Error);
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, 0, std::nan("")), 1.0, 5), Error);
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, 0), -1.0, 5), Error);
}

}  // namespace
}  // namespace plait
