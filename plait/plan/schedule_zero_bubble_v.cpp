#include <algorithm>

#include "plait/plan/schedule_orders.h"

namespace plait::detail {

namespace {

// The list of one rank: stage `down` on the way down the ranks, stage `up` on the way up. Each of its six counters runs through the
// micro-batches in order; those that a short schedule does not have are counted and left out.
class RankOrder {
 public:
  RankOrder(int64_t down, int64_t up, int64_t num_micro_batches) : stages_{down, up}, num_micro_batches_(num_micro_batches) {}

  void forward(int chunk) { add(chunk, ActionKind::kForward, forwards_[chunk]); }
  void backward(int chunk) { add(chunk, ActionKind::kBackward, backwards_[chunk]); }
  void weight(int chunk) { add(chunk, ActionKind::kWeight, weights_[chunk]); }
  void backward_and_weight(int chunk) {
    backward(chunk);
    weight(chunk);
  }
  int64_t num_forwards(int chunk) const { return forwards_[chunk]; }
  bool owes_weight(int chunk) const { return weights_[chunk] < backwards_[chunk]; }
  std::vector<Action> take() { return std::move(order_); }

 private:
  void add(int chunk, ActionKind kind, int64_t& counter) {
    if (counter < num_micro_batches_) order_.push_back({stages_[chunk], kind, counter});
    ++counter;
  }

  int64_t stages_[2], num_micro_batches_;
  int64_t forwards_[2] = {0, 0}, backwards_[2] = {0, 0}, weights_[2] = {0, 0};
  std::vector<Action> order_;
};

constexpr int kDown = 0, kUp = 1;

}  // namespace

ComputeOrders zero_bubble_v_order(int64_t pp_size, int64_t num_micro_batches) {
  const int64_t whole = std::max(num_micro_batches, 2 * pp_size - 1);  // what the warm-up below takes
  ComputeOrders orders;
  for (int64_t rank = 0; rank < pp_size; ++rank) {
    RankOrder order(rank, 2 * pp_size - 1 - rank, num_micro_batches);
    // Warm-up: until the first micro-batch has come back up to this rank; then a forward down for each one up; then the first backwards.
    for (int64_t i = 0; i < 2 * (pp_size - rank) - 1; ++i) order.forward(kDown);
    for (int64_t i = 0; i < rank; ++i) {
      order.forward(kUp);
      order.forward(kDown);
    }
    for (int64_t i = 0; i < pp_size - rank; ++i) {
      order.forward(kUp);
      order.backward_and_weight(kUp);
    }
    // Steady: a forward, a backward and a weight gradient of each of the two stages in turn.
    while (order.num_forwards(kUp) < order.num_forwards(kDown) || order.num_forwards(kDown) < whole) {
      if (order.num_forwards(kDown) < whole) order.forward(kDown);
      order.backward_and_weight(kDown);
      order.forward(kUp);
      order.backward_and_weight(kUp);
    }
    // Cool-down: first what other ranks wait for, the weight gradients in the gaps and at the end.
    for (int64_t i = 0; i < rank; ++i) {
      order.backward(kDown);
      order.backward(kUp);
    }
    for (int64_t i = 0; i < pp_size - rank; ++i) {
      order.backward(kDown);
      order.weight(kDown);
    }
    while (order.owes_weight(kUp)) order.weight(kUp);
    while (order.owes_weight(kDown)) order.weight(kDown);
    orders.push_back(order.take());
  }
  return orders;
}

int64_t zero_bubble_v_in_flight(int64_t pp_size, int64_t num_micro_batches) { return 2 * std::min(pp_size, num_micro_batches); }

ComputeOrders placed_forward_order(int64_t pp_size, const std::vector<int64_t>& stage_ranks, int64_t num_micro_batches) {
  const auto num_stages = static_cast<int64_t>(stage_ranks.size());
  std::vector<std::vector<int64_t>> ready_at(num_stages, std::vector<int64_t>(num_micro_batches, INT64_MAX));  // in unit times
  std::fill(ready_at[0].begin(), ready_at[0].end(), 0);
  std::vector<int64_t> next(num_stages);  // micro-batch
  ComputeOrders orders(pp_size);
  int64_t left = num_stages * num_micro_batches;
  for (int64_t now = 0; left > 0; ++now) {
    std::vector<char> busy(pp_size);
    for (int64_t s = num_stages - 1; s >= 0; --s) {
      int64_t rank = stage_ranks[s], m = next[s];
      if (busy[rank] || m == num_micro_batches || ready_at[s][m] > now) continue;
      busy[rank] = 1;
      orders[rank].push_back({s, ActionKind::kForward, m});
      if (s + 1 < num_stages) ready_at[s + 1][m] = now + 1;
      ++next[s];
      --left;
    }
  }
  return orders;
}

}  // namespace plait::detail
