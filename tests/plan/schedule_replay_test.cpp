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

// A table of times in the shape that runs have: a slow first micro-batch, a head on the last stage worth half a stage, unequal stages.
TEST(ScheduleReplay, ATableOfUnequalStages) {
  const double forward[4][8] = {{9.41, 8.93, 8.88, 9.02, 8.95, 8.97, 9.11, 8.90},
                                {8.52, 8.47, 8.61, 8.44, 8.50, 8.55, 8.49, 8.58},
                                {8.46, 8.60, 8.51, 8.53, 8.47, 8.64, 8.52, 8.49},
                                {13.90, 13.12, 13.31, 13.08, 13.22, 13.17, 13.26, 13.15}};
  const double backward[4][8] = {{17.73, 17.35, 17.41, 17.50, 17.29, 17.44, 17.38, 17.61},
                                 {16.92, 17.04, 16.88, 16.97, 17.11, 16.90, 16.95, 17.02},
                                 {17.01, 16.85, 16.93, 17.07, 16.89, 16.98, 17.03, 16.91},
                                 {25.88, 25.14, 25.33, 25.21, 25.40, 25.17, 25.28, 25.36}};
  for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2}) {
    bool defers = kind >= ScheduleKind::kZeroBubbleH1;
    auto milliseconds = [&](int64_t stage, char letter, int64_t m) {
      if (letter == 'F') return forward[stage][m];
      double whole = backward[stage][m];
      if (!defers) return whole;
      return letter == 'W' ? 0.45 * whole : 0.55 * whole;
    };
    expect_within_tenth(make_schedule(kind, 4, 1, 8), milliseconds, 0.12);
  }
}

}  // namespace
}  // namespace plait
