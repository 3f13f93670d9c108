// Schedules whose stages lie otherwise than on s % p: the V, and tables of any kind.
#include <gtest/gtest.h>

#include <algorithm>

#include "plait/base/text.h"
#include "plait/plan/schedule.h"

namespace plait {
namespace {

// ZB-V with F, B and W of one length: no rank idles from its first action to its last once there are 2 pp micro-batches, the ranks start one
// after the other, and no rank holds more than pp micro-batches of its whole depth, deferred weight gradients included.
TEST(Schedule, ZeroBubbleVHasNoGapAndTheMemoryOf1F1B) {
  for (int64_t pp = 2; pp <= 8; ++pp)
    for (int64_t m = 1; m <= 4 * pp; ++m) {
      ScheduleReport v = check_schedule(make_schedule(ScheduleKind::kZeroBubbleV, pp, 2, m));
      ASSERT_TRUE(v.complete) << pp << " " << m << ": " << v.problem;
      for (int64_t rank = 0; rank < pp; ++rank) {
        ASSERT_LE(v.peak_in_flight[rank], 2 * std::min(pp, m)) << pp << " " << m;
        ASSERT_LE(v.peak_held[rank], 2 * std::min(pp, m)) << pp << " " << m << " rank " << rank;
      }
      // In stages of half a rank's layers; 1F1B's are twice as long.
      double plain = 2 * check_schedule(make_schedule(ScheduleKind::k1F1B, pp, 1, m)).makespan;
      ASSERT_LT(v.makespan, plain) << pp << " " << m;
      ASSERT_GE(v.makespan, static_cast<double>(6 * m)) << pp << " " << m;
      if (m < 2 * pp) continue;
      ASSERT_EQ(v.makespan, static_cast<double>(6 * m + pp - 1)) << pp << " " << m;
      for (int64_t rank = 0; rank < pp; ++rank) {
        double at = static_cast<double>(rank);
        for (const TimedAction& timed : v.timeline[rank]) {
          ActionKind kind = timed.action.kind;
          if (kind != ActionKind::kForward && kind != ActionKind::kBackward && kind != ActionKind::kWeight) continue;
          ASSERT_EQ(timed.begin, at) << pp << " " << m << " rank " << rank << ": a gap before " << to_string(timed.action);
          at = timed.end;
        }
      }
    }
}

TEST(Schedule, TheMiddleOfTheVSendsNothing) {
  Schedule schedule = make_schedule(ScheduleKind::kZeroBubbleV, 3, 2, 4);
  EXPECT_EQ(schedule.stage_ranks, (std::vector<int64_t>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(schedule.chunk_of_stage(3), 1);
  for (const Action& action : schedule.actions[2]) {
    EXPECT_FALSE(action.stage == 2 && action.kind == ActionKind::kSendForward);
    EXPECT_FALSE(action.stage == 3 && action.kind == ActionKind::kRecvForward);
    EXPECT_FALSE(action.stage == 3 && action.kind == ActionKind::kSendBackward);
  }
  EXPECT_EQ(make_schedule(ScheduleKind::kZeroBubbleV, 3, 1, 4), schedule) << "1 stands for 2";
}

TEST(Schedule, ForwardsOfStagesThatLieAnywhere) {
  const std::vector<std::vector<int64_t>> tables = {{0, 1, 1, 0}, {0, 1, 2, 2, 1, 0}, {0, 0, 1, 1}, {1, 0}, {2, 0, 1, 1, 2, 0, 0, 2, 1}};
  for (const auto& table : tables) {
    int64_t pp = 1 + *std::max_element(table.begin(), table.end());
    for (int64_t m = 1; m <= 2 * pp + 1; ++m) {
      Schedule schedule = make_forward_schedule(pp, table, m);
      ScheduleReport report = check_schedule(schedule);
      ASSERT_TRUE(report.complete) << join(table) << ": " << report.problem;
      ASSERT_EQ(parse_schedule(to_text(schedule)), schedule);
    }
  }
}

TEST(ScheduleGolden, ZeroBubbleVOnTwoRanks) {
  EXPECT_EQ(to_text(make_schedule(ScheduleKind::kZeroBubbleV, 2, 2, 2)),
            "zb_v 2 4 2 ranks 0 1 1 0 in_flight 4 4\n"
            "0F0 0SF0 0F1 0SF1 3RF0 3F0 3B0 3SB0 3W0 3RF1 3F1 3B1 3SB1 3W1 0RB0 0B0 0W0 0RB1 0B1 0W1\n"
            "1RF0 1F0 2F0 2SF0 1RF1 1F1 2F1 2SF1 2RB0 2B0 2W0 1B0 1SB0 1W0 2RB1 2B1 2W1 1B1 1SB1 1W1\n");
}

}  // namespace
}  // namespace plait
