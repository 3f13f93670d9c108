#include "plait/train/early_stop.h"

#include <gtest/gtest.h>

#include <vector>

namespace plait {
namespace {

// After which of the evaluations (from 1) training stops; 0 = never.
int64_t stops_after(int64_t patience, double min_delta, bool higher_is_better, const std::vector<double>& values) {
  EarlyStop stop({.patience = patience, .min_delta = min_delta}, higher_is_better);
  for (size_t i = 0; i < values.size(); ++i)
    if (stop.should_stop(values[i])) return static_cast<int64_t>(i + 1);
  return 0;
}

TEST(EarlyStop, CountsEvaluationsInARow) {
  EXPECT_EQ(stops_after(2, 0, false, {3, 2, 2.5, 2.1, 1}), 4);
  EXPECT_EQ(stops_after(2, 0, false, {3, 2, 2.5, 1.9, 2, 1.8, 1.8, 1.8}), 8);
  EXPECT_EQ(stops_after(1, 0, false, {3, 3}), 2);  // the same is not better
  EXPECT_EQ(stops_after(2, 0, true, {0.5, 0.6, 0.6, 0.55, 0.7}), 4);
  EXPECT_EQ(stops_after(3, 0, true, {0.1, 0.2, 0.3, 0.4}), 0);
}

TEST(EarlyStop, SmallGainsDoNotCountButAddUp) {
  EXPECT_EQ(stops_after(3, 0.25, false, {3, 2.9, 2.8, 2.8}), 4);
  EXPECT_EQ(stops_after(3, 0.25, false, {3, 2.9, 2.7, 2.6, 2.5, 2.6}), 6);  // 3 -> 2.7 is a gain over the best one
  EXPECT_EQ(stops_after(1, 0.5, true, {0, 0.5}), 2);                        // must be more than min_delta
}

TEST(EarlyStop, PatienceZeroIsOff) { EXPECT_EQ(stops_after(0, 0, false, {1, 2, 3, 4, 5, 6}), 0); }

}  // namespace
}  // namespace plait
