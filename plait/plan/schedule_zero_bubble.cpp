#include <algorithm>

#include "plait/plan/schedule_orders.h"

namespace plait::detail {

namespace {

// One pipeline rank in the unit-time run below: how far it is, and when what it waits for arrives.
struct RankProgress {
  int64_t forwards = 0, backwards = 0, weights = 0;
  std::vector<int64_t> input_at, gradient_at;  // [micro-batch]; kNever = not produced yet
};
constexpr int64_t kNever = INT64_MAX;

}  // namespace

ComputeOrders zero_bubble_order(int64_t pp_size, int64_t num_micro_batches, bool fill_warm_up) {
  const int64_t m = num_micro_batches;
  std::vector<RankProgress> ranks(pp_size, {0, 0, 0, std::vector<int64_t>(m, kNever), std::vector<int64_t>(m, kNever)});
  std::fill(ranks[0].input_at.begin(), ranks[0].input_at.end(), 0);
  ComputeOrders orders(pp_size);
  const int64_t most_held = fill_warm_up ? 2 * pp_size - 1 : pp_size;
  int64_t left = 3 * m * pp_size;
  for (int64_t now = 0; left > 0; ++now) {
    for (int64_t r = 0; r < pp_size; ++r) {
      RankProgress& rank = ranks[r];
      const bool backward = rank.backwards < rank.forwards && rank.gradient_at[rank.backwards] <= now;
      const bool forward = rank.forwards < m && rank.input_at[rank.forwards] <= now &&
                           rank.forwards - rank.backwards < zero_bubble_in_flight(pp_size, m, r, fill_warm_up) &&
                           rank.forwards - rank.weights < most_held;
      if (backward) {
        orders[r].push_back({r, ActionKind::kBackward, rank.backwards});
        if (r > 0) ranks[r - 1].gradient_at[rank.backwards] = now + 1;
        ++rank.backwards;
      } else if (forward) {
        orders[r].push_back({r, ActionKind::kForward, rank.forwards});
        (r + 1 < pp_size ? ranks[r + 1].input_at : rank.gradient_at)[rank.forwards] = now + 1;
        ++rank.forwards;
      } else if (rank.weights < rank.backwards) {
        orders[r].push_back({r, ActionKind::kWeight, rank.weights++});
      } else {
        continue;
      }
      --left;
    }
  }
  return orders;
}

int64_t zero_bubble_in_flight(int64_t pp_size, int64_t num_micro_batches, int64_t rank, bool fill_warm_up) {
  return std::min(num_micro_batches, fill_warm_up ? 2 * (pp_size - rank) - 1 : pp_size - rank);
}

}  // namespace plait::detail
