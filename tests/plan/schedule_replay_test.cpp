// check_schedule's clock against a second simulator, written apart from it: it knows only the text form and plays the messages as an event
// list. Action times are not one cost a stage but drawn (or measured) one by one; the prediction from their means is held against what the
// single times give.
#include <gtest/gtest.h>

#include <array>
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

std::string what_of(const Schedule& schedule) { return cat(schedule.name, " pp ", schedule.pp_size, " m ", schedule.num_micro_batches); }

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

// Times drawn up to 20 % around their stage's: length and busy share, not the bubble, which such scatter alone can double where it is small.
TEST(ScheduleReplay, LengthOfDrawnTimesIsWithinATenthOfThePrediction) {
  for (ScheduleKind kind : kKinds)
    for (int64_t m : {4, 8, 16})
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        auto seconds = [&](int64_t stage, char letter, int64_t micro_batch) {
          auto key = static_cast<uint64_t>((stage * 3 + (letter == 'F' ? 0 : letter == 'B' ? 1 : 2)) * 1000 + micro_batch) + seed * 1000000;
          double unit = static_cast<double>(mix64(key) >> 11) * 0x1.0p-53;
          return (letter == 'F' ? 1.0 : letter == 'W' ? 1.0 : kind >= ScheduleKind::kZeroBubbleH1 ? 1.1 : 2.1) * (0.8 + 0.4 * unit);
        };
        Schedule schedule = make_schedule(kind, 4, chunks_of(kind), m);
        Played played = Player(to_text(schedule), seconds, 0.05).play();
        ScheduleReport report = predicted(schedule, played, 0.05);
        ASSERT_TRUE(report.complete) << report.problem;
        EXPECT_NEAR(played.makespan, report.makespan, 0.1 * report.makespan) << what_of(schedule);
        EXPECT_NEAR(1 - played.bubble, 1 - report.bubble, 0.1 * (1 - report.bubble)) << what_of(schedule);
      }
}

// Milliseconds of each stage's actions, by micro-batch.
struct ActionTimes {
  std::vector<std::array<double, 8>> forward, backward, weight;
};

// Of plait train itself, taken apart from any pipeline: all stages of a GPT-2 shape (8 layers of 256, the head on the last stage; 4 x 128
// tokens a micro-batch) on one rank with one thread, a custom schedule of 1 rank x 4 and 1 rank x 8 stages; the shortest of six traced steps.
const ActionTimes kFourStages = {{// forward
                                  {17.63, 17.81, 17.79, 17.62, 17.72, 17.72, 17.68, 17.77},
                                  {16.99, 17.04, 17.10, 16.98, 16.99, 17.16, 17.03, 17.18},
                                  {16.95, 17.06, 17.01, 16.96, 17.08, 17.22, 16.88, 19.16},
                                  {22.80, 22.93, 23.08, 22.98, 23.69, 23.16, 22.67, 22.81}},
                                 {// backward
                                  {19.79, 19.65, 19.58, 19.47, 19.36, 19.39, 19.39, 20.02},
                                  {19.19, 19.26, 19.19, 19.17, 19.09, 19.74, 19.41, 19.63},
                                  {28.88, 19.43, 19.29, 19.01, 19.29, 19.44, 19.12, 19.49},
                                  {24.28, 24.48, 24.43, 24.47, 24.28, 24.82, 24.29, 24.44}},
                                 {// weight
                                  {15.64, 15.77, 15.70, 15.70, 15.62, 15.57, 15.58, 15.81},
                                  {15.73, 15.80, 15.86, 15.67, 15.64, 16.00, 15.69, 15.80},
                                  {17.23, 15.89, 15.74, 15.64, 15.67, 15.92, 15.64, 15.80},
                                  {20.62, 20.61, 20.64, 20.59, 20.67, 20.72, 20.69, 20.58}}};
const ActionTimes kEightStages = {{// forward
                                   {9.25, 9.32, 9.16, 9.37, 9.12, 9.15, 9.31, 9.32},
                                   {8.75, 8.52, 8.58, 8.59, 8.68, 8.54, 8.95, 8.75},
                                   {8.62, 8.50, 8.53, 8.50, 8.57, 8.54, 8.75, 8.83},
                                   {8.57, 8.56, 8.73, 9.56, 8.50, 8.82, 8.59, 8.72},
                                   {8.47, 8.51, 8.63, 8.68, 8.55, 8.62, 8.56, 8.55},
                                   {8.50, 8.53, 8.55, 8.51, 8.54, 8.66, 8.58, 8.54},
                                   {8.51, 8.61, 8.57, 8.57, 8.53, 8.61, 8.70, 8.66},
                                   {14.41, 14.56, 16.16, 14.48, 14.47, 14.57, 14.53, 14.54}},
                                  {// backward
                                   {11.17, 9.89, 10.27, 9.81, 10.03, 10.04, 10.84, 10.31},
                                   {9.62, 9.65, 10.16, 9.69, 9.64, 9.82, 9.95, 9.93},
                                   {9.71, 9.60, 9.60, 9.64, 9.81, 9.87, 10.07, 9.75},
                                   {9.71, 9.60, 9.67, 9.63, 10.21, 9.94, 10.21, 9.68},
                                   {9.62, 9.62, 9.72, 9.63, 9.80, 10.12, 9.93, 12.90},
                                   {9.81, 9.64, 10.33, 9.73, 9.67, 9.78, 9.93, 9.74},
                                   {9.68, 9.67, 10.92, 9.69, 9.98, 9.81, 10.18, 10.19},
                                   {15.07, 15.16, 16.45, 15.20, 14.92, 15.96, 15.39, 15.10}},
                                  {// weight
                                   {7.93, 7.80, 7.80, 7.73, 7.83, 7.89, 8.08, 7.89},
                                   {7.91, 7.82, 7.94, 7.72, 7.84, 7.89, 7.99, 7.90},
                                   {7.88, 7.74, 7.72, 7.67, 7.78, 7.91, 7.84, 7.90},
                                   {7.79, 7.71, 7.80, 7.79, 7.92, 7.89, 7.92, 7.87},
                                   {7.79, 7.69, 8.13, 7.71, 7.84, 8.00, 7.90, 7.98},
                                   {7.72, 7.76, 7.80, 7.78, 7.80, 7.92, 8.03, 7.85},
                                   {7.76, 7.76, 8.49, 7.82, 7.83, 7.79, 7.95, 7.83},
                                   {12.82, 12.99, 13.92, 12.93, 13.05, 13.17, 13.26, 13.32}}};

// With these times, four ranks idle as the prediction from their means says.
TEST(ScheduleReplay, MeasuredTimesOfFourRanks) {
  for (ScheduleKind kind : kKinds) {
    const bool two_a_rank = kind == ScheduleKind::kInterleaved1F1B || kind == ScheduleKind::kZeroBubbleV;
    const ActionTimes& times = two_a_rank ? kEightStages : kFourStages;
    const bool defers = kind >= ScheduleKind::kZeroBubbleH1;
    auto milliseconds = [&](int64_t stage, char letter, int64_t micro_batch) {
      const auto s = static_cast<size_t>(stage), m = static_cast<size_t>(micro_batch);
      if (letter == 'F') return times.forward[s][m];
      if (letter == 'W') return times.weight[s][m];
      return times.backward[s][m] + (defers ? 0.0 : times.weight[s][m]);
    };
    Schedule schedule = make_schedule(kind, 4, two_a_rank ? 2 : 1, 8);
    Played played = Player(to_text(schedule), milliseconds, 0.3).play();
    ScheduleReport report = predicted(schedule, played, 0.3);
    ASSERT_TRUE(report.complete) << report.problem;
    EXPECT_NEAR(played.makespan, report.makespan, 0.1 * report.makespan) << what_of(schedule);
    EXPECT_NEAR(played.bubble, report.bubble, 0.1 * report.bubble) << what_of(schedule);
  }
}

}  // namespace
}  // namespace plait
