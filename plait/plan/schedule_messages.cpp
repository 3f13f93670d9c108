#include <map>
#include <utility>

#include "plait/plan/schedule_orders.h"

namespace plait::detail {

namespace {

// Messages of one pair of ranks and direction, in the order they are sent.
struct Channel {
  std::vector<Action> receives;
  size_t received = 0;
};

}  // namespace

Action matching_receive(const Action& send) {
  if (send.kind == ActionKind::kSendForward) return {send.stage + 1, ActionKind::kRecvForward, send.micro_batch};
  return {send.stage - 1, ActionKind::kRecvBackward, send.micro_batch};
}

Action matching_send(const Action& receive) {
  if (receive.kind == ActionKind::kRecvForward) return {receive.stage - 1, ActionKind::kSendForward, receive.micro_batch};
  return {receive.stage + 1, ActionKind::kSendBackward, receive.micro_batch};
}

void insert_messages(Schedule& schedule, const ComputeOrders& orders) {
  schedule.actions.assign(schedule.pp_size, {});
  if (schedule.pp_size == 1) {
    schedule.actions = orders;
    return;
  }
  int64_t last_stage = schedule.num_stages - 1;
  std::map<std::pair<int64_t, int64_t>, Channel> channels;  // (from, to)
  for (int64_t rank = 0; rank < schedule.pp_size; ++rank) {
    for (const Action& action : orders[rank]) {
      if (action.kind == ActionKind::kWeight) continue;
      bool forward = action.kind == ActionKind::kForward;
      int64_t to_stage = forward ? action.stage + 1 : action.stage - 1;
      if (to_stage < 0 || to_stage > last_stage || schedule.rank_of_stage(to_stage) == rank) continue;
      Action receive = matching_receive({action.stage, forward ? ActionKind::kSendForward : ActionKind::kSendBackward, action.micro_batch});
      channels[{rank, schedule.rank_of_stage(receive.stage)}].receives.push_back(receive);
    }
  }
  for (int64_t rank = 0; rank < schedule.pp_size; ++rank) {
    auto& actions = schedule.actions[rank];
    // [forward | backward][stage][micro-batch]
    std::vector<char> received(2 * schedule.num_stages * schedule.num_micro_batches);
    auto mark = [&](const Action& receive) -> char& {
      int64_t half = receive.kind == ActionKind::kRecvBackward ? schedule.num_stages : 0;
      return received[(half + receive.stage) * schedule.num_micro_batches + receive.micro_batch];
    };
    for (const Action& action : orders[rank]) {
      if (action.kind == ActionKind::kWeight) {
        actions.push_back(action);
        continue;
      }
      bool forward = action.kind == ActionKind::kForward;
      int64_t from_stage = forward ? action.stage - 1 : action.stage + 1, to_stage = forward ? action.stage + 1 : action.stage - 1;
      auto elsewhere = [&](int64_t stage) { return stage >= 0 && stage <= last_stage && schedule.rank_of_stage(stage) != rank; };
      if (elsewhere(from_stage)) {
        Action receive{action.stage, forward ? ActionKind::kRecvForward : ActionKind::kRecvBackward, action.micro_batch};
        Channel& channel = channels[{schedule.rank_of_stage(from_stage), rank}];
        while (!mark(receive)) {
          const Action& next = channel.receives.at(channel.received++);
          mark(next) = 1;
          actions.push_back(next);
        }
      }
      actions.push_back(action);
      if (elsewhere(to_stage))
        actions.push_back({action.stage, forward ? ActionKind::kSendForward : ActionKind::kSendBackward, action.micro_batch});
    }
  }
}

}  // namespace plait::detail
