#include "plait/plan/schedule_orders.h"

namespace plait::detail {

ComputeOrders gpipe_order(int64_t pp_size, int64_t num_micro_batches) {
  ComputeOrders orders(pp_size);
  for (int64_t rank = 0; rank < pp_size; ++rank) {
    for (int64_t m = 0; m < num_micro_batches; ++m) orders[rank].push_back({rank, ActionKind::kForward, m});
    // The paper draws the backwards last to first; first to last has the same bubble and sums gradients in the order of 1F1B.
    for (int64_t m = 0; m < num_micro_batches; ++m) orders[rank].push_back({rank, ActionKind::kBackward, m});
  }
  return orders;
}

ComputeOrders forward_order(int64_t pp_size, int64_t chunks, int64_t num_micro_batches) {
  int64_t rounds = (num_micro_batches + pp_size - 1) / pp_size;
  ComputeOrders orders(pp_size);
  for (int64_t rank = 0; rank < pp_size; ++rank) {
    for (int64_t i = 0; i < rounds * pp_size * chunks; ++i) {
      Action action = interleaved_step(pp_size, chunks, rank, i, ActionKind::kForward);
      if (action.micro_batch < num_micro_batches) orders[rank].push_back(action);
    }
  }
  return orders;
}

}  // namespace plait::detail
