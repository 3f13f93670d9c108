// check_schedule's clock against a second simulator, written apart from it: it knows only the text form and plays the messages as an event
// list. Action times are not one cost a stage but drawn (or given) one by one, as measurements are; the prediction from their means must
// come within 10 % of what the single times give.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <queue>
#include <sstream>

#include "plait/base/random.h"
#include "plait/config/enum_names.h"
#include "plait/plan/schedule.h"

namespace plait {
namespace {

struct Played {
  double makespan = 0, bubble = 0;
  std::map<std::pair<int64_t, char>, std::vector<double>> times;  // of each (stage, F | B | W)
};

// Seconds of one computation: (stage, letter, micro-batch).
using ActionSeconds = std::function<double(int64_t, char, int64_t)>;

// Ranks as queues of words; a rank that stands before a receive whose message has not come is woken when it does.
class Player {
 public:
  Player(const std::string& text, ActionSeconds seconds, double send_seconds) : seconds_(std::move(seconds)), send_seconds_(send_seconds) {
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      auto& words = ranks_.emplace_back().words;
      std::istringstream in(line);
      for (std::string word; in >> word;) words.push_back(word);
    }
  }

  Played play() {
    for (size_t r = 0; r < ranks_.size(); ++r) events_.push({0.0, r});
    while (!events_.empty()) {
      auto [now, r] = events_.top();
      events_.pop();
      Rank& rank = ranks_[r];
      if (now < rank.free_at) now = rank.free_at;
      while (rank.next < rank.words.size() && step(r, now)) ++rank.next;
      rank.free_at = now;
    }
    Played played;
    double busy = 0;
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(rank.next, rank.words.size()) << "stuck";
      played.makespan = std::max(played.makespan, rank.last_computed);
      busy += rank.busy;
    }
    played.bubble = 1 - busy / (played.makespan * static_cast<double>(ranks_.size()));
    played.times = times_;
    return played;
  }

 private:
  struct Rank {
    std::vector<std::string> words;
    size_t next = 0;
    double free_at = 0, busy = 0, last_computed = 0;
  };
  using Event = std::pair<double, size_t>;

  // False: must wait. Advances `now`.
  bool step(size_t r, double& now) {
    const std::string& word = ranks_[r].words[ranks_[r].next];
    size_t letters = word.find_first_not_of("0123456789"), digits = word.find_first_of("0123456789", letters);
    int64_t stage = std::stoll(word.substr(0, letters)), m = std::stoll(word.substr(digits));
    std::string kind = word.substr(letters, digits - letters);
    if (kind[0] == 'S' || kind[0] == 'R') {
      // Named by the lower stage of its border.
      std::string border = std::to_string(kind == "SF" || kind == "RB" ? stage : stage - 1) + kind[1] + std::to_string(m);
      if (kind[0] == 'S') {
        arrival_[border] = now + send_seconds_;
        if (auto it = waiting_.find(border); it != waiting_.end()) events_.push({now + send_seconds_, it->second});
        return true;
      }
      auto it = arrival_.find(border);
      if (it == arrival_.end()) {
        waiting_[border] = r;
        return false;
      }
      now = std::max(now, it->second);
      return true;
    }
    double taken = seconds_(stage, kind[0], m);
    times_[{stage, kind[0]}].push_back(taken);
    now += taken;
    ranks_[r].busy += taken;
    ranks_[r].last_computed = now;
    return true;
  }

  ActionSeconds seconds_;
  double send_seconds_;
  std::vector<Rank> ranks_;
  std::map<std::string, double> arrival_;
  std::map<std::string, size_t> waiting_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::map<std::pair<int64_t, char>, std::vector<double>> times_;
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// The prediction a user would make: one cost a stage, the mean of its times.
ScheduleReport predicted(const Schedule& schedule, const Played& played, double send_seconds) {
  ScheduleCost cost;
  cost.send = send_seconds;
  for (int64_t s = 0; s < schedule.num_stages; ++s) {
    auto of = [&](char letter) {
      auto it = played.times.find({s, letter});
      return it == played.times.end() ? 0.0 : mean(it->second);
    };
    cost.stages.push_back({of('F'), of('B') + of('W'), of('W')});
  }
  return check_schedule(schedule, cost);
}

void expect_within_tenth(const Schedule& schedule, const ActionSeconds& seconds, double send_seconds) {
  Played played = Player(to_text(schedule), seconds, send_seconds).play();
  ScheduleReport report = predicted(schedule, played, send_seconds);
  std::string what = cat(schedule.name, " pp ", schedule.pp_size, " m ", schedule.num_micro_batches);
  ASSERT_TRUE(report.complete) << report.problem;
  EXPECT_NEAR(played.makespan, report.makespan, 0.1 * report.makespan) << what;
  EXPECT_NEAR(1 - played.bubble, 1 - report.bubble, 0.1 * (1 - report.bubble)) << what;
}

constexpr ScheduleKind kKinds[] = {ScheduleKind::kGPipe,        ScheduleKind::k1F1B,         ScheduleKind::kInterleaved1F1B,
                                   ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2, ScheduleKind::kZeroBubbleV};

int64_t chunks_of(ScheduleKind kind) { return kind == ScheduleKind::kInterleaved1F1B ? 2 : 1; }

// With one time a stage both clocks must be the same, whatever the times.
TEST(ScheduleReplay, TwoSimulatorsAgreeExactly) {
  for (ScheduleKind kind : kKinds)
    for (int64_t pp = 1; pp <= 8; ++pp)
      for (int64_t m = 1; m <= 2 * pp + 1; ++m)
        for (double send : {0.0, 0.3, 2.5}) {
          Schedule schedule = make_schedule(kind, pp, chunks_of(kind), m);
          auto seconds = [&](int64_t stage, char letter, int64_t) {
            return (letter == 'F' ? 1.0 : letter == 'W' ? 0.8 : 1.7) * (1.0 + 0.1 * static_cast<double>(stage % 3));
          };
          Played played = Player(to_text(schedule), seconds, send).play();
          ScheduleReport report = predicted(schedule, played, send);
          ASSERT_NEAR(played.makespan, report.makespan, 1e-9 * report.makespan) << enum_word(kind) << " " << pp << " " << m << " " << send;
          ASSERT_NEAR(played.bubble, report.bubble, 1e-9) << enum_word(kind) << " " << pp << " " << m << " " << send;
        }
}

// Times that scatter by up to 20 % around their stage's, as those of a run do.
TEST(ScheduleReplay, SingleTimesOfFourRanksAreWithinATenthOfThePrediction) {
  for (ScheduleKind kind : kKinds)
    for (int64_t m : {4, 8, 16})
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        auto seconds = [&](int64_t stage, char letter, int64_t micro_batch) {
          auto key = static_cast<uint64_t>((stage * 3 + (letter == 'F' ? 0 : letter == 'B' ? 1 : 2)) * 1000 + micro_batch) + seed * 1000000;
          double unit = static_cast<double>(mix64(key) >> 11) * 0x1.0p-53;
          return (letter == 'F' ? 1.0 : letter == 'W' ? 1.0 : kind >= ScheduleKind::kZeroBubbleH1 ? 1.1 : 2.1) * (0.8 + 0.4 * unit);
        };
        expect_within_tenth(make_schedule(kind, 4, chunks_of(kind), m), seconds, 0.05);
      }
}

// Milliseconds of plait train itself: the four stages of a GPT-2 shape (8 layers of 256, the head on the last) on one rank, so that each action
// had a core to itself (custom schedule of 1 rank x 4 stages; 4 x 128 tokens a micro-batch; the better of two traced steps). The machine was
// busy: the times scatter by a quarter.
TEST(ScheduleReplay, MeasuredTimesOfFourStages) {
  const double forward[4][8] = {{300.52, 314.55, 263.11, 301.11, 274.13, 272.67, 328.46, 314.07},
                                {329.50, 310.18, 345.88, 273.16, 346.71, 370.68, 286.12, 269.82},
                                {238.03, 351.15, 264.06, 325.83, 345.90, 300.47, 258.88, 326.24},
                                {444.75, 459.12, 447.66, 416.21, 406.73, 425.83, 361.90, 363.90}};
  const double backward[4][8] = {{338.16, 392.80, 334.77, 280.50, 351.28, 251.58, 330.75, 329.01},
                                 {270.41, 427.31, 375.75, 394.46, 393.36, 377.91, 329.75, 296.80},
                                 {355.33, 399.23, 326.26, 257.33, 248.99, 253.25, 333.41, 372.12},
                                 {412.54, 506.66, 433.39, 377.96, 374.69, 367.94, 346.53, 406.17}};
  const double weight[4][8] = {{260.91, 259.96, 214.35, 173.84, 194.17, 224.36, 236.78, 260.38},
                               {268.35, 242.50, 222.54, 236.10, 240.21, 240.49, 167.12, 291.79},
                               {227.94, 350.78, 258.14, 233.74, 238.47, 252.60, 206.13, 269.66},
                               {357.04, 338.71, 292.51, 341.92, 312.24, 270.94, 304.11, 274.72}};
  for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2}) {
    bool defers = kind >= ScheduleKind::kZeroBubbleH1;
    auto milliseconds = [&](int64_t stage, char letter, int64_t m) {
      if (letter == 'F') return forward[stage][m];
      if (letter == 'W') return weight[stage][m];
      return backward[stage][m] + (defers ? 0.0 : weight[stage][m]);
    };
    expect_within_tenth(make_schedule(kind, 4, 1, 8), milliseconds, 1.0);
  }
}

}  // namespace
}  // namespace plait
