// Verification by counting, then by replay. The first thing wrong is said in words; nothing here throws.
#include <algorithm>
#include <map>
#include <utility>

#include "plait/base/error.h"
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

// What is wrong, and in whose list (-1: no single one's).
struct Problem {
  std::string text;
  int64_t rank = -1;
  bool none() const { return text.empty(); }
};

template <class... Pieces>
Problem problem_of(int64_t rank, const Pieces&... pieces) {
  return {cat("rank ", rank, ": ", pieces...), rank};
}

std::string placement_problem(const Schedule& s) {
  if (s.stage_ranks.empty()) return "";
  if (static_cast<int64_t>(s.stage_ranks.size()) != s.num_stages)
    return cat("ranks of ", s.stage_ranks.size(), " stages, but there are ", s.num_stages);
  std::vector<int64_t> held(s.pp_size);
  for (int64_t stage = 0; stage < s.num_stages; ++stage) {
    int64_t rank = s.stage_ranks[stage];
    if (rank < 0 || rank >= s.pp_size)
      return cat("stage ", stage, " lies on rank ", rank, ", but there are ", s.pp_size, " pipeline ranks");
    ++held[rank];
  }
  for (int64_t rank = 0; rank < s.pp_size; ++rank)
    if (held[rank] != s.num_stages / s.pp_size)
      return cat("rank ", rank, " holds ", held[rank], " of the ", s.num_stages, " stages: every rank must hold ",
                 s.num_stages / s.pp_size);
  return "";
}

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
  return placement_problem(s);
}

// How often an action must occur in a schedule of these sizes. W: `weights` of the schedule, all or none.
bool is_needed(const Schedule& s, const Action& action, bool weights) {
  auto crosses = [&](int64_t low_stage) {  // a message between low_stage and low_stage + 1
    return low_stage >= 0 && low_stage + 1 < s.num_stages && s.rank_of_stage(low_stage) != s.rank_of_stage(low_stage + 1);
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

// Who waits for a message that is missing.
std::string waiting_for(const Schedule& s, const Action& action) {
  if (!sends(action.kind)) return "";
  Action receive = detail::matching_receive(action);
  return cat(": rank ", s.rank_of_stage(receive.stage), " waits for it at ", to_string(receive));
}

// Every needed action exactly once, on the rank of its stage, and nothing else.
Problem count_problem(const Schedule& s) {
  ActionTable<char> count(s, 0);
  bool weights = false;
  for (int64_t rank = 0; rank < s.pp_size; ++rank) {
    for (const Action& action : s.actions[rank]) {
      if (action.stage < 0 || action.stage >= s.num_stages || action.micro_batch < 0 || action.micro_batch >= s.num_micro_batches)
        return problem_of(rank, to_string(action), " is outside ", s.num_stages, " stages x ", s.num_micro_batches, " micro-batches");
      if (s.rank_of_stage(action.stage) != rank)
        return problem_of(rank, to_string(action), " belongs to rank ", s.rank_of_stage(action.stage));
      if (count[action]++) return problem_of(rank, to_string(action), " occurs twice");
      weights = weights || action.kind == ActionKind::kWeight;
    }
  }
  for (int64_t kind = 0; kind < kNumKinds; ++kind) {
    for (int64_t stage = 0; stage < s.num_stages; ++stage) {
      for (int64_t m = 0; m < s.num_micro_batches; ++m) {
        Action action{stage, static_cast<ActionKind>(kind), m};
        bool needed = is_needed(s, action, weights);
        if (needed && !count[action]) return problem_of(s.rank_of_stage(stage), to_string(action), " is missing", waiting_for(s, action));
        if (!needed && count[action]) return problem_of(s.rank_of_stage(stage), to_string(action), " has no counterpart in this schedule");
      }
    }
  }
  return {};
}

// The gradients of a stage are added in micro-batch order: by its backwards, and by its weight gradients where they are deferred.
Problem order_problem(const Schedule& s) {
  for (int64_t rank = 0; rank < s.pp_size; ++rank) {
    std::map<std::pair<int64_t, ActionKind>, int64_t> next;
    for (const Action& action : s.actions[rank]) {
      if (action.kind != ActionKind::kBackward && action.kind != ActionKind::kWeight) continue;
      int64_t expected = next[{action.stage, action.kind}]++;
      if (action.micro_batch != expected)
        return problem_of(rank, to_string(action), " comes before ", to_string({action.stage, action.kind, expected}), ": the ",
                          action.kind == ActionKind::kWeight ? "weight gradients" : "backwards",
                          " of a stage must run in micro-batch order, as that is the order in which its gradients are added");
    }
  }
  return {};
}

// Between two ranks, per direction, the k-th receive takes the k-th send.
Problem channel_problem(const Schedule& s) {
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
        return {cat("message ", k, " from rank ", ranks.first, " to rank ", ranks.second, " is sent as ", to_string(sent[k]),
                    " but received as ", to_string(received[k])),
                ranks.second};
    }
  }
  return {};
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

  // What stops the replay, if anything.
  Problem run() {
    while (true) {
      bool moved = false, finished = true;
      for (int64_t rank = 0; rank < schedule_.pp_size; ++rank) {
        const auto& actions = schedule_.actions[rank];
        while (next_[rank] < actions.size()) {
          Action missing;
          if (!step(rank, actions[next_[rank]], missing)) {
            if (schedule_.rank_of_stage(missing.stage) == rank)
              return problem_of(rank, to_string(actions[next_[rank]]), " comes before ", to_string(missing));
            break;
          }
          ++next_[rank];
          moved = true;
        }
        finished = finished && next_[rank] == actions.size();
      }
      if (finished) return {};
      if (!moved) return deadlock();
    }
  }
  std::vector<std::vector<TimedAction>> take_timeline() { return std::move(timeline_); }

 private:
  // What must be done before `action` may run, on whichever rank.
  std::vector<Action> needs(const Action& a) const {
    auto beside = [&](int64_t stage) { return schedule_.rank_of_stage(stage) == schedule_.rank_of_stage(a.stage); };
    switch (a.kind) {
      case ActionKind::kForward:
        if (a.stage == 0) return {};
        if (beside(a.stage - 1)) return {{a.stage - 1, ActionKind::kForward, a.micro_batch}};
        return {{a.stage, ActionKind::kRecvForward, a.micro_batch}};
      case ActionKind::kBackward: {
        std::vector<Action> needed = {{a.stage, ActionKind::kForward, a.micro_batch}};
        if (a.stage + 1 == schedule_.num_stages) return needed;
        if (beside(a.stage + 1)) needed.push_back({a.stage + 1, ActionKind::kBackward, a.micro_batch});
        else needed.push_back({a.stage, ActionKind::kRecvBackward, a.micro_batch});
        return needed;
      }
      case ActionKind::kWeight: return {{a.stage, ActionKind::kBackward, a.micro_batch}};
      case ActionKind::kSendForward: return {{a.stage, ActionKind::kForward, a.micro_batch}};
      case ActionKind::kSendBackward: return {{a.stage, ActionKind::kBackward, a.micro_batch}};
      case ActionKind::kRecvForward:
      case ActionKind::kRecvBackward: return {detail::matching_send(a)};
    }
    return {};
  }

  StageCost cost_of(int64_t stage) const {
    if (cost_.stages.empty()) return {cost_.forward, cost_.backward, cost_.weight};
    return cost_.stages[static_cast<size_t>(stage)];
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
    const StageCost cost = cost_of(action.stage);
    if (action.kind == ActionKind::kForward) end = begin + cost.forward;
    if (action.kind == ActionKind::kBackward) end = begin + (defers_ ? std::max(0.0, cost.backward - cost.weight) : cost.backward);
    if (action.kind == ActionKind::kWeight) end = begin + cost.weight;
    // A send takes no time of its rank; `done` of a send is when the message arrives.
    done_[action] = sends(action.kind) ? begin + cost_.send : end;
    if (sends(action.kind)) end = begin;
    clock_[rank] = end;
    timeline_[rank].push_back({action, begin, end});
    return true;
  }

  Problem deadlock() const {
    std::string text = "deadlock:";
    int64_t first = -1;
    for (int64_t rank = 0; rank < schedule_.pp_size; ++rank) {
      if (next_[rank] == schedule_.actions[rank].size()) continue;
      if (first < 0) first = rank;
      const Action& action = schedule_.actions[rank][next_[rank]];
      text += cat(" rank ", rank, " waits at ", to_string(action), " for ", to_string(needs(action).front()), ";");
    }
    text.pop_back();
    return {text, first};
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
  bool defers = false;
  for (const auto& row : report.timeline)
    for (const TimedAction& timed : row) defers = defers || timed.action.kind == ActionKind::kWeight;
  for (const auto& row : report.timeline) {
    int64_t in_flight = 0, held = 0, peak = 0, peak_held = 0;
    for (const TimedAction& timed : row) {
      const ActionKind kind = timed.action.kind;
      if (kind == ActionKind::kForward && !schedule.forward_only()) {
        peak = std::max(peak, ++in_flight);
        peak_held = std::max(peak_held, ++held);
      }
      if (kind == ActionKind::kBackward) --in_flight;
      if (kind == (defers ? ActionKind::kWeight : ActionKind::kBackward)) --held;
      if (computes(kind)) {
        busy += timed.end - timed.begin;
        report.makespan = std::max(report.makespan, timed.end);
      }
    }
    report.peak_in_flight.push_back(peak);
    report.peak_held.push_back(peak_held);
  }
  if (report.makespan > 0) report.bubble = std::max(0.0, 1.0 - busy / (report.makespan * schedule.pp_size));
}

Problem limit_problem(const Schedule& schedule, const ScheduleReport& report) {
  for (size_t rank = 0; rank < schedule.in_flight_limit.size(); ++rank)
    if (report.peak_in_flight[rank] > schedule.in_flight_limit[rank])
      return {cat("rank ", rank, " holds ", report.peak_in_flight[rank], " micro-batches in flight, its limit is ",
                  schedule.in_flight_limit[rank]),
              static_cast<int64_t>(rank)};
  return {};
}

}  // namespace

ScheduleReport check_schedule(const Schedule& schedule, const ScheduleCost& cost) {
  PLAIT_CHECK(cost.stages.empty() || static_cast<int64_t>(cost.stages.size()) == schedule.num_stages, "costs of ", cost.stages.size(),
              " stages for ", schedule.num_stages);
  ScheduleReport report;
  Problem problem{size_problem(schedule)};
  if (problem.none()) problem = count_problem(schedule);
  if (problem.none()) {
    Replay replay(schedule, cost);
    problem = replay.run();
    report.timeline = replay.take_timeline();
    measure(schedule, report);
    if (problem.none()) problem = channel_problem(schedule);
    if (problem.none()) problem = order_problem(schedule);
    if (problem.none()) problem = limit_problem(schedule, report);
  }
  report.problem = problem.text;
  report.problem_rank = problem.rank;
  report.complete = problem.none();
  return report;
}

}  // namespace plait
