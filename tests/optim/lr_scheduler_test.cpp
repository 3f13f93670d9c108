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

TEST(LrScheduler, BadSettings) {
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, 0), 1.0, 0), Error);
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, -1), 1.0, 5), Error);
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, 0, 1.5), 1.0, 5), Error);
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, 0, std::nan("")), 1.0, 5), Error);
  EXPECT_THROW(LrScheduler(config_of(LrSchedulerKind::kLinear, 0), -1.0, 5), Error);
}

}  // namespace
}  // namespace plait
