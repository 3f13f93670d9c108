#include <algorithm>

#include "plait/plan/schedule_orders.h"

namespace plait::detail {

ComputeOrders one_f_one_b_order(int64_t pp_size, int64_t num_micro_batches) {
  ComputeOrders orders(pp_size);
  for (int64_t rank = 0; rank < pp_size; ++rank) {
    int64_t warm_up = std::min(num_micro_batches, pp_size - 1 - rank);
    auto& order = orders[rank];
    for (int64_t m = 0; m < warm_up; ++m) order.push_back({rank, ActionKind::kForward, m});
    for (int64_t m = warm_up; m < num_micro_batches; ++m) {
      order.push_back({rank, ActionKind::kForward, m});
      order.push_back({rank, ActionKind::kBackward, m - warm_up});
    }
    for (int64_t m = num_micro_batches - warm_up; m < num_micro_batches; ++m) order.push_back({rank, ActionKind::kBackward, m});
  }
  return orders;
}

}  // namespace plait::detail
