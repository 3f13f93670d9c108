#include "plait/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include "plait/base/error.h"

namespace plait {
namespace {

TEST(LossScaler, HalvesOnceOnOverflowAndGrowsAfterGoodSteps) {
  LossScaleConfig config;
  config.init_scale = 1024;
  config.growth_interval = 3;
  LossScaler scaler(config, true);
  EXPECT_EQ(scaler.scale(), 1024.0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 512.0);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 512.0);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1024.0);
  // An overflow starts the count anew.
  scaler.update(false);
  scaler.update(false);
  scaler.update(true);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 512.0);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1024.0);
}

TEST(LossScaler, StaysBetweenItsLimits) {
  LossScaleConfig config;
  config.init_scale = 4;
  config.growth_interval = 1;
  LossScaler scaler(config, true);
  for (int i = 0; i < 2; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0);
  EXPECT_FALSE(scaler.exhausted());
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0);
  EXPECT_TRUE(scaler.exhausted());
  scaler.update(false);
  EXPECT_FALSE(scaler.exhausted());
  for (int i = 0; i < 100; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), LossScaler::kMaxScale);
}

TEST(LossScaler, StaticStaysAndGivesUp) {
  LossScaleConfig config;
  config.dynamic = false;
  config.init_scale = 128;
  config.growth_interval = 2;
  LossScaler scaler(config, true);
  for (int i = 0; i < 10; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 128.0);
  for (int64_t i = 1; i < LossScaler::kMaxStaticOverflows; ++i) scaler.update(true);
  EXPECT_FALSE(scaler.exhausted());
  scaler.update(false);  // one good step starts the count anew
  for (int64_t i = 1; i < LossScaler::kMaxStaticOverflows; ++i) scaler.update(true);
  EXPECT_FALSE(scaler.exhausted());
  scaler.update(true);
  EXPECT_TRUE(scaler.exhausted());
  EXPECT_EQ(scaler.scale(), 128.0);
}

TEST(LossScaler, OffMeansOne) {
  LossScaler scaler(LossScaleConfig{}, false);
  scaler.update(true);
  for (int i = 0; i < 5000; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1.0);
  EXPECT_FALSE(scaler.exhausted());
}

TEST(LossScaler, RestoreContinuesTheCount) {
  LossScaleConfig config;
  config.growth_interval = 5;
  LossScaler first(config, true), second(config, true);
  for (int i = 0; i < 3; ++i) first.update(false);
  second.restore(first.scale(), first.good_steps());
  for (int i = 0; i < 2; ++i) {
    first.update(false);
    second.update(false);
  }
  EXPECT_EQ(second.scale(), 2 * config.init_scale);
  EXPECT_EQ(second.scale(), first.scale());
}

TEST(LossScaler, BadSettings) {
  LossScaleConfig config;
  config.init_scale = 0.5;
  EXPECT_THROW(LossScaler(config, true), Error);
  EXPECT_NO_THROW(LossScaler(config, false));
  config = {};
  config.backoff_factor = 1.0;
  EXPECT_THROW(LossScaler(config, true), Error);
  config = {};
  config.growth_interval = 0;
  EXPECT_THROW(LossScaler(config, true), Error);
}

}  // namespace
}  // namespace plait
