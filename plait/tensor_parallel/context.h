// TensorParallelContext: what a tensor-parallel layer needs to know of its surroundings.
// Activations are [T, ...] with tokens as rows. With sequence parallelism the regions between the parallel layers hold only
// t = ceil(T / tp_size) rows a rank (the last ranks' missing rows are zeros); Korthikanti et al., arXiv 2205.05198.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "plait/comm/shared_buffer.h"

namespace plait {

// Weight gradients that wait to be computed ("W" actions of a schedule). Not armed: work runs at once.
class WeightGradientQueue {
 public:
  void set_deferring(bool deferring) { deferring_ = deferring; }
  // What is deferred from now on belongs to this piece of the schedule: (virtual stage, micro-batch).
  void set_owner(std::pair<int64_t, int64_t> owner) { owner_ = owner; }
  void run_or_defer(std::function<void()> work) {
    if (deferring_) waiting_.emplace_back(owner_, std::move(work));
    else work();
  }
  bool empty() const { return waiting_.empty(); }
  // Runs what waits, oldest first.
  void flush() {
    auto work = std::move(waiting_);
    waiting_.clear();
    for (auto& [owner, run] : work) run();
  }
  // Runs what waits of one owner, oldest first, and frees what it held.
  void flush(std::pair<int64_t, int64_t> owner) {
    for (auto& [whose, run] : waiting_)
      if (whose == owner) run();
    std::erase_if(waiting_, [&](const auto& entry) { return entry.first == owner; });
  }

 private:
  bool deferring_ = false;
  std::pair<int64_t, int64_t> owner_{0, 0};
  std::vector<std::pair<std::pair<int64_t, int64_t>, std::function<void()>>> waiting_;
};

struct TensorParallelContext {
  ProcessGroup* group = nullptr;   // the tensor axis; null: one rank, records only
  bool sequence_parallel = false;  // only with group->size() > 1
  WeightGradientQueue* weight_gradients = nullptr;
  bool overlap = true;         // messages travel beside products that do not need them; false: each is waited for at once. Same bits
  bool p2p = false;            // products and their messages in pieces of rows, by sends and receives; `group` is then a RingGroup
  SharedPool* pool = nullptr;  // where partial products lie that the others of `group` read in place; null: anywhere

  int64_t size() const { return group ? group->size() : 1; }
  int64_t rank() const { return group ? group->rank() : 0; }
  // Rows of a sequence-parallel region for `num_tokens` tokens.
  int64_t local_rows(int64_t num_tokens) const { return sequence_parallel ? (num_tokens + size() - 1) / size() : num_tokens; }
};

}  // namespace plait
