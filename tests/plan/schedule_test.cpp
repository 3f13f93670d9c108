#include "plait/plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/plan/schedule_orders.h"

namespace plait {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::kGPipe,        ScheduleKind::k1F1B,         ScheduleKind::kInterleaved1F1B,
                                   ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2, ScheduleKind::kZeroBubbleV};

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(Schedule, EveryKindIsCompleteForAnySize) {
  for (ScheduleKind kind : kKinds) {
    bool interleaved = kind == ScheduleKind::kInterleaved1F1B;
    for (int64_t pp = 1; pp <= 8; ++pp)
      for (int64_t chunks = interleaved ? 2 : 1; chunks <= (interleaved ? 4 : 1); ++chunks)
        for (int64_t m = 1; m <= 3 * pp + 2; ++m) {
          for (double backward : {1.0, 2.0, 5.0}) {
            ScheduleReport report = check_schedule(make_schedule(kind, pp, chunks, m), {.backward = backward, .send = 0.25});
            ASSERT_TRUE(report.complete) << enum_word(kind) << " pp " << pp << " chunks " << chunks << " m " << m << ": " << report.problem;
          }
        }
  }
}

TEST(Schedule, ForwardOnlyIsCompleteAndHoldsNothing) {
  for (int64_t pp = 1; pp <= 6; ++pp)
    for (int64_t chunks = 1; chunks <= 3; ++chunks)
      for (int64_t m = 1; m <= 2 * pp + 1; ++m) {
        Schedule schedule = make_forward_schedule(pp, chunks, m);
        ScheduleReport report = check_schedule(schedule);
        ASSERT_TRUE(report.complete) << pp << " " << chunks << " " << m << ": " << report.problem;
        ASSERT_EQ(report.peak_in_flight, std::vector<int64_t>(pp, 0));
      }
  EXPECT_DOUBLE_EQ(check_schedule(make_forward_schedule(4, 1, 8)).bubble, 3.0 / 11);
}

TEST(Schedule, BubbleFollowsTheFormula) {
  for (int64_t pp = 1; pp <= 8; ++pp)
    for (int64_t m = 1; m <= 3 * pp; ++m)
      for (double backward : {1.0, 2.0, 3.0}) {
        double expected = static_cast<double>(pp - 1) / static_cast<double>(m + pp - 1);
        for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B})
          ASSERT_NEAR(check_schedule(make_schedule(kind, pp, 1, m), {.backward = backward}).bubble, expected, 1e-12)
              << enum_word(kind) << " pp " << pp << " m " << m;
        for (int64_t chunks = 2; m % pp == 0 && chunks <= 4; ++chunks)
          ASSERT_NEAR(check_schedule(make_schedule(ScheduleKind::kInterleaved1F1B, pp, chunks, m), {.backward = backward}).bubble,
                      static_cast<double>(pp - 1) / static_cast<double>(chunks * m + pp - 1), 1e-12)
              << "interleaved pp " << pp << " m " << m << " chunks " << chunks;
      }
}

// F, B and W of one length: at least the ramp of the last rank remains; H2 has no more than that once there are enough micro-batches.
TEST(Schedule, ZeroBubbleIsShorterThan1F1B) {
  for (int64_t pp = 2; pp <= 8; ++pp)
    for (int64_t m = 1; m <= 4 * pp; ++m) {
      double plain = check_schedule(make_schedule(ScheduleKind::k1F1B, pp, 1, m)).makespan;
      double h1 = check_schedule(make_schedule(ScheduleKind::kZeroBubbleH1, pp, 1, m)).makespan;
      double h2 = check_schedule(make_schedule(ScheduleKind::kZeroBubbleH2, pp, 1, m)).makespan;
      ASSERT_LT(h1, plain) << pp << " " << m;
      ASSERT_LE(h2, h1) << pp << " " << m;
      ASSERT_GE(h2, static_cast<double>(3 * m + pp - 1)) << pp << " " << m;
      if (m >= 2 * pp) {
        ASSERT_EQ(h2, static_cast<double>(3 * m + pp - 1)) << pp << " " << m;
      }
    }
}

TEST(ScheduleGolden, ZeroBubbleH1OnTwoRanks) {
  EXPECT_EQ(to_text(make_schedule(ScheduleKind::kZeroBubbleH1, 2, 1, 2)),
            "zb_h1 2 2 2 in_flight 2 1\n"
            "0F0 0SF0 0F1 0SF1 0RB0 0B0 0W0 0RB1 0B1 0W1\n"
            "1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1 1W0 1W1\n");
}

TEST(Schedule, PeakInFlight) {
  for (int64_t pp = 1; pp <= 8; ++pp)
    for (int64_t m = 1; m <= 2 * pp + 1; ++m)
      for (int64_t rank = 0; rank < pp; ++rank) {
        ASSERT_EQ(check_schedule(make_schedule(ScheduleKind::k1F1B, pp, 1, m)).peak_in_flight[rank], std::min(m, pp - rank));
        ASSERT_EQ(check_schedule(make_schedule(ScheduleKind::kGPipe, pp, 1, m)).peak_in_flight[rank], m);
        int64_t interleaved = check_schedule(make_schedule(ScheduleKind::kInterleaved1F1B, pp, 2, m)).peak_in_flight[rank];
        ASSERT_LE(interleaved, std::min(2 * m, pp + 2 * (pp - 1 - rank) + 1));
        if (m % pp == 0) {
          ASSERT_EQ(interleaved, std::min(2 * m, pp + 2 * (pp - 1 - rank) + 1));
        }
      }
}

TEST(Schedule, GradientsOfAStageAreSummedInMicroBatchOrderByEveryKind) {
  for (ScheduleKind kind : kKinds)
    for (int64_t m : {1, 3, 4, 7, 8, 9}) {
      Schedule schedule = make_schedule(kind, 4, kind == ScheduleKind::kInterleaved1F1B ? 2 : 1, m);
      for (const auto& actions : schedule.actions) {
        std::map<std::pair<int64_t, ActionKind>, int64_t> next;
        for (const Action& action : actions) {
          if (action.kind != ActionKind::kForward && action.kind != ActionKind::kBackward && action.kind != ActionKind::kWeight) continue;
          ASSERT_EQ(action.micro_batch, (next[{action.stage, action.kind}]++)) << enum_word(kind) << " " << to_string(action);
        }
      }
    }
}

TEST(Schedule, OneRankSendsNothing) {
  for (const Schedule& schedule : {make_schedule(ScheduleKind::kInterleaved1F1B, 1, 3, 4), make_forward_schedule(1, 3, 4),
                                   make_schedule(ScheduleKind::kZeroBubbleV, 1, 2, 4)})
    for (const Action& action : schedule.actions[0])
      EXPECT_TRUE(action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeight)
          << to_string(action);
}

TEST(Schedule, SendsFollowTheirProductionDirectly) {
  Schedule schedule = make_schedule(ScheduleKind::kInterleaved1F1B, 2, 2, 5);
  for (const auto& actions : schedule.actions)
    for (size_t i = 0; i < actions.size(); ++i) {
      bool forward = actions[i].kind == ActionKind::kSendForward;
      if (!forward && actions[i].kind != ActionKind::kSendBackward) continue;
      ActionKind production = forward ? ActionKind::kForward : ActionKind::kBackward;
      ASSERT_EQ(actions[i - 1], (Action{actions[i].stage, production, actions[i].micro_batch}));
    }
}

// On two ranks activations and gradients of interleaved stages share a direction: there the receives must keep the order of sends.
TEST(Schedule, BothKindsOfMessageShareADirectionOnTwoRanks) {
  Schedule schedule = make_schedule(ScheduleKind::kInterleaved1F1B, 2, 2, 4);
  bool forward = false, backward = false;
  for (const Action& action : schedule.actions[0]) {
    forward = forward || action.kind == ActionKind::kSendForward;
    backward = backward || action.kind == ActionKind::kSendBackward;
  }
  EXPECT_TRUE(forward && backward);
  EXPECT_TRUE(check_schedule(schedule).complete);
}

TEST(ScheduleGolden, OneFOneBOnThreeRanksWithFourMicroBatches) {
  EXPECT_EQ(to_text(make_schedule(ScheduleKind::k1F1B, 3, 1, 4)),
            "1f1b 3 3 4 in_flight 3 2 1\n"
            "0F0 0SF0 0F1 0SF1 0F2 0SF2 0RB0 0B0 0F3 0SF3 0RB1 0B1 0RB2 0B2 0RB3 0B3\n"
            "1RF0 1F0 1SF0 1RF1 1F1 1SF1 1RB0 1B0 1SB0 1RF2 1F2 1SF2 1RB1 1B1 1SB1 1RF3 1F3 1SF3 1RB2 1B2 1SB2 1RB3 1B3 1SB3\n"
            "2RF0 2F0 2B0 2SB0 2RF1 2F1 2B1 2SB1 2RF2 2F2 2B2 2SB2 2RF3 2F3 2B3 2SB3\n");
}

TEST(ScheduleGolden, GPipeOnTwoRanks) {
  EXPECT_EQ(to_text(make_schedule(ScheduleKind::kGPipe, 2, 1, 2)),
            "gpipe 2 2 2 in_flight 2 2\n"
            "0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n"
            "1RF0 1F0 1RF1 1F1 1B0 1SB0 1B1 1SB1\n");
}

TEST(ScheduleGolden, InterleavedWithAShortLastRound) {
  EXPECT_EQ(to_text(make_schedule(ScheduleKind::kInterleaved1F1B, 2, 2, 1)),
            "interleaved_1f1b 2 4 1 in_flight 2 2\n"
            "0F0 0SF0 2RF0 2F0 2SF0 2RB0 2B0 2SB0 0RB0 0B0\n"
            "1RF0 1F0 1SF0 3RF0 3F0 3B0 3SB0 1RB0 1B0 1SB0\n");
}

TEST(ScheduleGolden, InterleavedOnTwoRanksWithFourMicroBatches) {
  Schedule schedule = make_schedule(ScheduleKind::kInterleaved1F1B, 2, 2, 4);
  auto computations = [&](int64_t rank) {
    std::vector<std::string> words;
    for (const Action& action : schedule.actions[rank])
      if (action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward) words.push_back(to_string(action));
    return join(words, " ");
  };
  EXPECT_EQ(computations(0), "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
  EXPECT_EQ(computations(1), "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
}

TEST(ScheduleMessages, AreReceivedInTheOrderTheyWereSent) {
  Schedule schedule = make_forward_schedule(2, 1, 2);
  detail::insert_messages(schedule, {{parse_action("0F0"), parse_action("0F1")}, {parse_action("1F1"), parse_action("1F0")}});
  EXPECT_EQ(to_text(schedule), "forward 2 2 2\n0F0 0SF0 0F1 0SF1\n1RF0 1RF1 1F1 1F0\n");
}

TEST(ScheduleText, ParsesWhatItPrints) {
  for (ScheduleKind kind : kKinds)
    for (int64_t m : {1, 2, 5}) {
      Schedule schedule = make_schedule(kind, 3, kind == ScheduleKind::kInterleaved1F1B ? 2 : 1, m);
      EXPECT_EQ(parse_schedule(to_text(schedule)), schedule);
    }
  Schedule forward = make_forward_schedule(3, 2, 4);
  EXPECT_EQ(parse_schedule(to_text(forward)), forward);
  for (const char* text : {"2F0", "0B11", "3W4", "2SF0", "2RF0", "10SB7", "0RB3"}) EXPECT_EQ(to_string(parse_action(text)), text);
}

TEST(ScheduleText, RefusesWhatIsNotASchedule) {
  for (const char* text : {"", "F0", "2", "2X0", "2F", "2F0x", "-1F0", "2S0", "2 F0", "99999999999999999999F0", "2F-1"})
    EXPECT_NE(message_of([&] { parse_action(text); }).find("is not 'stage kind micro-batch'"), std::string::npos) << text;
  EXPECT_NE(message_of([] { parse_schedule(""); }).find("empty"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("1f1b 2 2\n"); }).find("line 1"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("x 2 3 1\n\n\n"); }).find("spread evenly"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("x 2 2 1\n0F0\n"); }).find("lines for 1"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("x 1 1 1\n0F0\n0B0\n"); }).find("more lines"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("x 2 2 1 in_flight 1\n\n\n"); }).find("in_flight"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("x 0 2 1\n"); }).find("at least 1"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("x 2 4 1 ranks 0 1 1\n\n\n"); }).find("'ranks' needs 4 numbers"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("x 2 2 1 speed 1\n\n\n"); }).find("found 'speed'"), std::string::npos);
  EXPECT_NE(message_of([] { parse_schedule("x 1 9000000000000000000 1 ranks 0\n\n"); }).find("'ranks' needs"), std::string::npos);
  EXPECT_EQ(message_of([] { parse_schedule("x 2 2 1\n0F0\n1F0 1G0\n", "my.txt"); }).find("my.txt:3: rank 1: action '1G0'"), 0u);
  // A table that says what holds anyway is none.
  EXPECT_EQ(parse_schedule("x 2 2 1 ranks 0 1\n0F0\n1F0\n"), parse_schedule("x 2 2 1\n0F0\n1F0\n"));
}

TEST(ScheduleSizes, RefusalsNameTheSetting) {
  auto make = [](ScheduleKind kind, int64_t pp, int64_t chunks, int64_t m) {
    return message_of([&] { make_schedule(kind, pp, chunks, m); });
  };
  EXPECT_NE(make(ScheduleKind::kInterleaved1F1B, 2, 1, 4).find("virtual_pipeline_size 1"), std::string::npos);
  EXPECT_NE(make(ScheduleKind::k1F1B, 2, 2, 4).find("virtual_pipeline_size 2 with schedule 1f1b"), std::string::npos);
  EXPECT_NE(make(ScheduleKind::kZeroBubbleV, 2, 3, 4).find("virtual_pipeline_size 3 with schedule zb_v"), std::string::npos);
  EXPECT_NE(make(ScheduleKind::kAuto, 2, 1, 4).find("schedule auto"), std::string::npos);
  EXPECT_NE(make(ScheduleKind::kCustom, 2, 1, 4).find("schedule_file"), std::string::npos);
  EXPECT_NE(make(ScheduleKind::k1F1B, 0, 1, 4).find("pipeline_parallel_size 0"), std::string::npos);
  EXPECT_NE(make(ScheduleKind::kGPipe, 2, 1, 0).find("micro-batches 0"), std::string::npos);
  EXPECT_NE(make(ScheduleKind::kGPipe, 1 << 30, 1, int64_t{1} << 60).find("too large"), std::string::npos);
  EXPECT_NE(message_of([] { make_forward_schedule(2, 1, -3); }).find("-3"), std::string::npos);
}

// The checker on broken schedules: each edit of a good one must be named.
struct Damage {
  const char* text;
  const char* problem;
};

TEST(ScheduleCheck, NamesWhatIsWrong) {
  const Damage damages[] = {
      {"x 2 2 1\n0F0 0SF0 0RB0\n1RF0 1F0 1B0 1SB0\n", "rank 0: 0B0 is missing"},
      {"x 2 2 1\n0F0 0SF0 0RB0 0B0 0B0\n1RF0 1F0 1B0 1SB0\n", "rank 0: 0B0 occurs twice"},
      {"x 2 2 1\n0F0 0RB0 0B0\n1RF0 1F0 1B0 1SB0\n", "rank 0: 0SF0 is missing: rank 1 waits for it at 1RF0"},
      {"x 2 2 1\n0F0 0SF0 0RB0 0B0\n1F0 1B0 1SB0\n", "rank 1: 1RF0 is missing"},
      {"x 2 2 1\n0F0 0SF0 0RB0 0B0\n1RF0 1B0 1F0 1SB0\n", "rank 1: 1B0 comes before 1F0"},
      {"x 2 2 1\n0F0 0SF0 0RB0 0B0\n1F0 1RF0 1B0 1SB0\n", "rank 1: 1F0 comes before 1RF0"},
      {"x 2 2 1\n0SF0 0F0 0RB0 0B0\n1RF0 1F0 1B0 1SB0\n", "rank 0: 0SF0 comes before 0F0"},
      {"x 2 2 1\n0F0 0SF0 0RB0 0B0 0F1\n1RF0 1F0 1B0 1SB0\n", "rank 0: 0F1 is outside"},
      {"x 2 2 1\n0F0 0SF0 0RB0 0B0\n1RF0 1F0 1B0 1SB0 0F0\n", "rank 1: 0F0 belongs to rank 0"},
      {"x 2 2 1\n0F0 0SF0 0RB0 0B0\n1RF0 1F0 1B0 1SB0 1SF0\n", "rank 1: 1SF0 has no counterpart"},
      {"x 1 2 1\n0F0 0SF0 1RF0 1F0 1B0 0B0\n", "rank 0: 0SF0 has no counterpart"},
      {"x 2 2 1\n0RB0 0F0 0SF0 0B0\n1RF0 1F0 1B0 1SB0\n", "deadlock: rank 0 waits at 0RB0 for 1SB0; rank 1 waits at 1RF0 for 0SF0"},
      {"x 2 2 2\n0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n1RF1 1RF0 1F0 1F1 1B0 1SB0 1B1 1SB1\n",
       "message 0 from rank 0 to rank 1 is sent as 0SF0 but received as 1RF1"},
      {"x 2 2 2 in_flight 1 1\n0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1\n",
       "rank 0 holds 2 micro-batches in flight, its limit is 1"},
      {"forward 1 1 1\n0F0 0B0\n", "rank 0: 0B0 has no counterpart"},
      {"x 1 1 2\n0F0 0B0 0F1 0B1 0W0\n", "rank 0: 0W1 is missing"},
      {"x 1 1 1\n0F0 0W0 0B0\n", "rank 0: 0W0 comes before 0B0"},
      {"x 1 1 2\n0F0 0F1 0B1 0B0\n", "rank 0: 0B1 comes before 0B0: the backwards of a stage must run in micro-batch order"},
      {"x 1 1 2\n0F0 0F1 0B0 0B1 0W1 0W0\n", "rank 0: 0W1 comes before 0W0: the weight gradients of a stage must run in micro-batch"},
      {"x 2 4 1 ranks 0 1 1 0\n0F0 0SF0 3RF0 3F0 3B0 3SB0 0RB0 0B0\n1RF0 1F0 1SF0 2F0 2SF0 2RB0 2B0 1B0 1SB0\n",
       "rank 1: 1SF0 has no counterpart"},
      {"x 2 4 1 ranks 0 1 1 0\n0F0 0SF0 3RF0 3F0 3B0 3SB0 0RB0 0B0\n1RF0 2F0 1F0 2SF0 2RB0 2B0 1B0 1SB0\n", "rank 1: 2F0 comes before 1F0"},
      {"x 2 4 1 ranks 0 1 1 0\n0F0 0SF0 3RF0 3F0 3B0 3SB0 0RB0 0B0\n1RF0 1F0 2F0 2SF0 2RB0 1B0 2B0 1SB0\n", "rank 1: 1B0 comes before 2B0"},
      {"x 2 4 1 ranks 0 1 1 1\n0F0\n1F0 2F0 3F0\n", "rank 0 holds 1 of the 4 stages: every rank must hold 2"},
      {"x 2 2 1 ranks 0 2\n0F0\n1F0\n", "stage 1 lies on rank 2"},
      {"x 1 1 9000000000000000000\n0F0 0B0\n", "cannot hold"},
      {"x 1 9000000000000000000 1\n0F0 0B0\n", "cannot hold"},
  };
  for (const Damage& damage : damages) {
    ScheduleReport report = check_schedule(parse_schedule(damage.text));
    EXPECT_FALSE(report.complete) << damage.text;
    EXPECT_NE(report.problem.find(damage.problem), std::string::npos) << damage.text << "said: " << report.problem;
  }
  EXPECT_TRUE(check_schedule(parse_schedule("x 1 1 2\n0F0 0B0 0F1 0B1 0W0 0W1\n")).complete);
  EXPECT_EQ(check_schedule(parse_schedule(damages[3].text)).problem_rank, 1);
}

// Any single action left out of a schedule is noticed.
TEST(ScheduleCheck, EveryActionIsNeeded) {
  for (ScheduleKind kind : kKinds) {
    Schedule good = make_schedule(kind, 3, kind == ScheduleKind::kInterleaved1F1B ? 2 : 1, 4);
    for (size_t rank = 0; rank < good.actions.size(); ++rank)
      for (size_t i = 0; i < good.actions[rank].size(); ++i) {
        Schedule broken = good;
        broken.actions[rank].erase(broken.actions[rank].begin() + i);
        ASSERT_FALSE(check_schedule(broken).complete) << enum_word(kind) << " without " << to_string(good.actions[rank][i]);
      }
  }
}

TEST(ScheduleCheck, TimelineOfASmallSchedule) {
  ScheduleReport report = check_schedule(make_schedule(ScheduleKind::k1F1B, 2, 1, 1), {.forward = 1, .backward = 2, .send = 0.5});
  ASSERT_TRUE(report.complete) << report.problem;
  // F 0..1 | send | F 1.5..2.5, B 2.5..4.5 | send | B 5..7
  EXPECT_DOUBLE_EQ(report.makespan, 7);
  EXPECT_DOUBLE_EQ(report.bubble, 1 - 6.0 / 14);
  const auto& row = report.timeline[1];
  ASSERT_EQ(row.size(), 4u);
  EXPECT_EQ(to_string(row[0].action), "1RF0");
  EXPECT_DOUBLE_EQ(row[0].end, 1.5);
  EXPECT_DOUBLE_EQ(row[2].end, 4.5);
}

TEST(ScheduleCheck, EachStageHasItsOwnCosts) {
  // Stage 1 takes twice as long: F 0..1, F 1..3, B 3..7, B 7..9.
  ScheduleReport report = check_schedule(make_schedule(ScheduleKind::k1F1B, 2, 1, 1), {.stages = {{1, 2, 1}, {2, 4, 2}}});
  EXPECT_DOUBLE_EQ(report.makespan, 9);
  // A deferred weight gradient is a part of its stage's backward.
  report = check_schedule(make_schedule(ScheduleKind::kZeroBubbleH1, 2, 1, 1), {.stages = {{1, 2, 0.5}, {2, 4, 3}}});
  // F 0..1 | F 1..3, B 3..4, W 4..7 | B 4..5.5, W ..6
  EXPECT_DOUBLE_EQ(report.timeline[0].back().end, 6);
  EXPECT_DOUBLE_EQ(report.makespan, 7);
}

TEST(ScheduleDraw, TextShowsARowARank) {
  EXPECT_EQ(draw_text(check_schedule(make_schedule(ScheduleKind::k1F1B, 2, 1, 2))),
            "rank 0 |F0 F1       B0---    B1--- |\n"
            "rank 1 |   F0 B0--- F1 B1---       |\n"
            "time    0     2     4     6     8\n");
}

// docs/schedules.md shows what the program prints.
TEST(ScheduleDocs, ExampleIsWhatIsPrinted) {
  std::ifstream file(PLAIT_SOURCE_DIR "/docs/schedules.md");
  std::stringstream docs;
  docs << file.rdbuf();
  Schedule schedule = make_schedule(ScheduleKind::k1F1B, 2, 1, 3);
  EXPECT_NE(docs.str().find(to_text(schedule)), std::string::npos) << to_text(schedule);
  EXPECT_NE(docs.str().find(draw_text(check_schedule(schedule))), std::string::npos) << draw_text(check_schedule(schedule));
}

TEST(ScheduleDraw, SvgHasABlockForEveryComputationAndTheBubble) {
  Schedule schedule = make_schedule(ScheduleKind::kInterleaved1F1B, 4, 2, 8);
  schedule.name = "a<b";
  std::string svg = draw_svg(schedule, check_schedule(schedule));
  size_t blocks = 0;
  for (size_t at = svg.find("</title></rect>"); at != std::string::npos; at = svg.find("</title></rect>", at + 1)) ++blocks;
  EXPECT_EQ(blocks, 2u * 8 * 8);
  EXPECT_NE(svg.find("bubble 15.8 %"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_EQ(svg.find("a<b"), std::string::npos);
  EXPECT_EQ(svg.rfind("</svg>\n"), svg.size() - 7);
}

}  // namespace
}  // namespace plait
