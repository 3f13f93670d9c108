// Verification by counting, then by replay. The first thing wrong is said in words; nothing here throws.
#include <algorithm>
#include <map>
#include <utility>

#include "plait/base/text.h"
#include "plait/plan/schedule_orders.h"

namespace plait {

namespace {

constexpr int64_t kNumKinds = 7;
constexpr double kNotYet = -1.0;

bool computes(ActionKind kind) { return kind == ActionKind::kForward || kind == ActionKind::kBackward || kind == ActionKind::kWeight; }
bool sends(ActionKind kind) { return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward; }

// One value for each (kind, stage, micro-batch).
template <class Value>
class ActionTable {
 public:
  ActionTable(const Schedule& schedule, Value value)
      : num_stages_(schedule.num_stages), num_micro_batches_(schedule.num_micro_batches),
        values_(kNumKinds * num_stages_ * num_micro_batches_, value) {}
  Value& operator[](const Action& a) {
    return values_[(static_cast<int64_t>(a.kind) * num_stages_ + a.stage) * num_micro_batches_ + a.micro_batch];
  }

 private:
  int64_t num_stages_, num_micro_batches_;
  std::vector<Value> values_;
};

std::string size_problem(const Schedule& s) {
  if (s.pp_size < 1 || s.num_micro_batches < 1 || s.num_stages < s.pp_size || s.num_stages % s.pp_size != 0)
    return cat(s.num_stages, " stages on ", s.pp_size, " pipeline ranks with ", s.num_micro_batches, " micro-batches make no schedule");
  if (static_cast<int64_t>(s.actions.size()) != s.pp_size) return cat("lists for ", s.actions.size(), " ranks, but pp_size is ", s.pp_size);
  // Guards the tables below: a header may claim sizes that the lists cannot hold.
  int64_t num_actions = 0;
  for (const auto& actions : s.actions) num_actions += actions.size();
  if (s.num_stages > num_actions || s.num_micro_batches > num_actions / s.num_stages)
    return cat(num_actions, " actions cannot hold ", s.num_stages, " stages x ", s.num_micro_batches, " forwards");
  if (!s.in_flight_limit.empty() && static_cast<int64_t>(s.in_flight_limit.size()) != s.pp_size)
    return cat("in-flight limits for ", s.in_flight_limit.size(), " ranks, but pp_size is ", s.pp_size);
  return "";
}

// How often an action must occur in a schedule of these sizes. W: `weights` of the schedule, all or none.
bool is_needed(const Schedule& s, const Action& action, bool weights) {
  auto crosses = [&](int64_t low_stage) {  // a message between low_stage and low_stage + 1
    return low_stage >= 0 && low_stage + 1 < s.num_stages && s.pp_size > 1;
  };
  switch (action.kind) {
    case ActionKind::kForward: return true;
    case ActionKind::kBackward: return !s.forward_only();
    case ActionKind::kWeight: return weights;
    case ActionKind::kSendForward: return crosses(action.stage);
    case ActionKind::kRecvForward: return crosses(action.stage - 1);
    case ActionKind::kSendBackward: return !s.forward_only() && crosses(action.stage - 1);
    case ActionKind::kRecvBackward: return !s.forward_only() && crosses(action.stage);
  }
  return false;
}

// Every needed action exactly once, on the rank of its stage, and nothing else.
std::string count_problem(const Schedule& s) {
  ActionTable<char> count(s, 0);
  bool weights = false;
  for (int64_t rank = 0; rank < s.pp_size; ++rank) {
    for (const Action& action : s.actions[rank]) {
      if (action.stage < 0 || action.stage >= s.num_stages || action.micro_batch < 0 || action.micro_batch >= s.num_micro_batches)
        return cat("rank ", rank, ": ", to_string(action), " is outside ", s.num_stages, " stages x ", s.num_micro_batches,
                   " micro-batches");
      if (s.rank_of_stage(action.stage) != rank)
        return cat("rank ", rank, ": ", to_string(action), " belongs to rank ", s.rank_of_stage(action.stage));
      if (count[action]++) return cat("rank ", rank, ": ", to_string(action), " occurs twice");
      weights = weights || action.kind == ActionKind::kWeight;
    }
  }
  for (int64_t kind = 0; kind < kNumKinds; ++kind) {
    for (int64_t stage = 0; stage < s.num_stages; ++stage) {
      for (int64_t m = 0; m < s.num_micro_batches; ++m) {
        Action action{stage, static_cast<ActionKind>(kind), m};
        bool needed = is_needed(s, action, weights);
        if (needed && !count[action]) return cat("rank ", s.rank_of_stage(stage), ": ", to_string(action), " is missing");
        if (!needed && count[action])
          return cat("rank ", s.rank_of_stage(stage), ": ", to_string(action), " has no counterpart in this schedule");
      }
    }
  }
  return "";
}

// Between two ranks, per direction, the k-th receive takes the k-th send.
std::string channel_problem(const Schedule& s) {
  std::map<std::pair<int64_t, int64_t>, std::pair<std::vector<Action>, std::vector<Action>>> channels;  // (from, to): sent, received
  for (int64_t rank = 0; rank < s.pp_size; ++rank) {
    for (const Action& action : s.actions[rank]) {
      if (computes(action.kind)) continue;
      if (sends(action.kind)) channels[{rank, s.rank_of_stage(detail::matching_receive(action).stage)}].first.push_back(action);
      else channels[{s.rank_of_stage(detail::matching_send(action).stage), rank}].second.push_back(action);
    }
  }
  for (const auto& [ranks, messages] : channels) {
    const auto& [sent, received] = messages;
    for (size_t k = 0; k < sent.size(); ++k) {
      if (detail::matching_receive(sent[k]) != received[k])
        return cat("message ", k, " from rank ", ranks.first, " to rank ", ranks.second, " is sent as ", to_string(sent[k]),
                   " but received as ", to_string(received[k]));
    }
  }
  return "";
}

// Runs the lists with a clock a rank. Assumes that counts are right.
class Replay {
 public:
  Replay(const Schedule& schedule, const ScheduleCost& cost)
      : schedule_(schedule), cost_(cost), done_(schedule, kNotYet), next_(schedule.pp_size), clock_(schedule.pp_size),
        timeline_(schedule.pp_size) {
    for (const auto& actions : schedule.actions)
      for (const Action& action : actions) defers_ = defers_ || action.kind == ActionKind::kWeight;
  }

  // "" or what stops the replay.
  std::string run() {
    while (true) {
      bool moved = false, finished = true;
      for (int64_t rank = 0; rank < schedule_.pp_size; ++rank) {
        const auto& actions = schedule_.actions[rank];
        while (next_[rank] < actions.size()) {
          Action missing;
          if (!step(rank, actions[next_[rank]], missing)) {
            if (schedule_.rank_of_stage(missing.stage) == rank)
              return cat("rank ", rank, ": ", to_string(actions[next_[rank]]), " comes before ", to_string(missing));
            break;
          }
          ++next_[rank];
          moved = true;
        }
        finished = finished && next_[rank] == actions.size();
      }
      if (finished) return "";
      if (!moved) return deadlock();
    }
  }
  std::vector<std::vector<TimedAction>> take_timeline() { return std::move(timeline_); }

 private:
  // What must be done before `action` may run, on whichever rank.
  std::vector<Action> needs(const Action& a) const {
    bool alone = schedule_.pp_size == 1;
    switch (a.kind) {
      case ActionKind::kForward:
        if (a.stage == 0) return {};
        return {alone ? Action{a.stage - 1, ActionKind::kForward, a.micro_batch}
                      : Action{a.stage, ActionKind::kRecvForward, a.micro_batch}};
      case ActionKind::kBackward:
        if (a.stage + 1 == schedule_.num_stages) return {{a.stage, ActionKind::kForward, a.micro_batch}};
        return {
            {a.stage, ActionKind::kForward, a.micro_batch},
            alone ? Action{a.stage + 1, ActionKind::kBackward, a.micro_batch} : Action{a.stage, ActionKind::kRecvBackward, a.micro_batch}};
      case ActionKind::kWeight: return {{a.stage, ActionKind::kBackward, a.micro_batch}};
      case ActionKind::kSendForward: return {{a.stage, ActionKind::kForward, a.micro_batch}};
      case ActionKind::kSendBackward: return {{a.stage, ActionKind::kBackward, a.micro_batch}};
      case ActionKind::kRecvForward:
      case ActionKind::kRecvBackward: return {detail::matching_send(a)};
    }
    return {};
  }

  bool step(int64_t rank, const Action& action, Action& missing) {
    double begin = clock_[rank], end = begin;
    for (const Action& needed : needs(action)) {
      if (done_[needed] == kNotYet) {
        missing = needed;
        return false;
      }
      end = std::max(end, done_[needed]);
    }
    if (action.kind == ActionKind::kForward) end = begin + cost_.forward;
    if (action.kind == ActionKind::kBackward) end = begin + (defers_ ? std::max(0.0, cost_.backward - cost_.weight) : cost_.backward);
    if (action.kind == ActionKind::kWeight) end = begin + cost_.weight;
    // A send takes no time of its rank; `done` of a send is when the message arrives.
    done_[action] = sends(action.kind) ? begin + cost_.send : end;
    if (sends(action.kind)) end = begin;
    clock_[rank] = end;
    timeline_[rank].push_back({action, begin, end});
    return true;
  }

  std::string deadlock() const {
    std::string text = "deadlock:";
    for (int64_t rank = 0; rank < schedule_.pp_size; ++rank) {
      if (next_[rank] == schedule_.actions[rank].size()) continue;
      const Action& action = schedule_.actions[rank][next_[rank]];
      text += cat(" rank ", rank, " waits at ", to_string(action), " for ", to_string(needs(action).front()), ";");
    }
    text.pop_back();
    return text;
  }

  const Schedule& schedule_;
  const ScheduleCost& cost_;
  bool defers_ = false;  // has W actions
  ActionTable<double> done_;
  std::vector<size_t> next_;
  std::vector<double> clock_;
  std::vector<std::vector<TimedAction>> timeline_;
};

void measure(const Schedule& schedule, ScheduleReport& report) {
  double busy = 0;
  for (const auto& row : report.timeline) {
    int64_t in_flight = 0, peak = 0;
    for (const TimedAction& timed : row) {
      if (timed.action.kind == ActionKind::kForward && !schedule.forward_only()) peak = std::max(peak, ++in_flight);
      if (timed.action.kind == ActionKind::kBackward) --in_flight;
      if (computes(timed.action.kind)) {
        busy += timed.end - timed.begin;
        report.makespan = std::max(report.makespan, timed.end);
      }
    }
    report.peak_in_flight.push_back(peak);
  }
  if (report.makespan > 0) report.bubble = std::max(0.0, 1.0 - busy / (report.makespan * schedule.pp_size));
}

std::string limit_problem(const Schedule& schedule, const ScheduleReport& report) {
  for (size_t rank = 0; rank < schedule.in_flight_limit.size(); ++rank)
    if (report.peak_in_flight[rank] > schedule.in_flight_limit[rank])
      return cat("rank ", rank, " holds ", report.peak_in_flight[rank], " micro-batches in flight, its limit is ",
                 schedule.in_flight_limit[rank]);
  return "";
}

}  // namespace

ScheduleReport check_schedule(const Schedule& schedule, const ScheduleCost& cost) {
  ScheduleReport report;
  report.problem = size_problem(schedule);
  if (report.problem.empty()) report.problem = count_problem(schedule);
  if (!report.problem.empty()) return report;
  Replay replay(schedule, cost);
  report.problem = replay.run();
  report.timeline = replay.take_timeline();
  measure(schedule, report);
  if (report.problem.empty()) report.problem = channel_problem(schedule);
  if (report.problem.empty()) report.problem = limit_problem(schedule, report);
  report.complete = report.problem.empty();
  return report;
}

}  // namespace plait
