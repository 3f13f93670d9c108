// TensorParallelContext: what a tensor-parallel layer needs to know of its surroundings.
// Activations are [T, ...] with tokens as rows. With sequence parallelism the regions between the parallel layers hold only
// t = ceil(T / tp_size) rows a rank (the last ranks' missing rows are zeros); Korthikanti et al., arXiv 2205.05198.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "plait/comm/process_group.h"

namespace plait {

// Weight gradients that wait to be computed ("W" actions of a schedule). Not armed: work runs at once.
class WeightGradientQueue {
 public:
  void set_deferring(bool deferring) { deferring_ = deferring; }
  void run_or_defer(std::function<void()> work) {
    if (deferring_) waiting_.push_back(std::move(work));
    else work();
  }
  bool empty() const { return waiting_.empty(); }
  // Runs what waits, oldest first.
  void flush() {
    auto work = std::move(waiting_);
    waiting_.clear();
    for (auto& w : work) w();
  }

 private:
  bool deferring_ = false;
  std::vector<std::function<void()>> waiting_;
};

struct TensorParallelContext {
  ProcessGroup* group = nullptr;   // the tensor axis; null: one rank, records only
  bool sequence_parallel = false;  // only with group->size() > 1
  WeightGradientQueue* weight_gradients = nullptr;

  int64_t size() const { return group ? group->size() : 1; }
  int64_t rank() const { return group ? group->rank() : 0; }
  // Rows of a sequence-parallel region for `num_tokens` tokens.
  int64_t local_rows(int64_t num_tokens) const { return sequence_parallel ? (num_tokens + size() - 1) / size() : num_tokens; }
};

}  // namespace plait
