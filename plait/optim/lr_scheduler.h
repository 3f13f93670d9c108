// LrScheduler: the learning rate of each optimizer update as a closed formula (docs: "Learning rate of update k"), so it has no state,
// and accumulation, layout, resume and skipped micro-batches cannot move it. As in Hugging Face, the first update of a warm-up has lr 0.
#pragma once

#include <cstdint>

#include "plait/config/config.h"

namespace plait {

class LrScheduler {
 public:
  // total_updates: T, all optimizer updates of the run, >= 1. Throws Error(kUsage): settings out of range.
  LrScheduler(const LrSchedulerConfig& config, double lr, int64_t total_updates);

  // Learning rate of update k (0-based). k < w: lr k/w; then linear: lr (T-k)/(T-w); cosine: lr/2 (1 + cos(pi (k-w)/(T-w)));
  // constant: lr. From k = T on: what the formula gives at T (linear and cosine: 0).
  double lr(int64_t update) const;
  int64_t warmup_updates() const { return warmup_; }
  int64_t total_updates() const { return total_; }

 private:
  LrSchedulerKind kind_;
  double lr_;
  int64_t total_;
  int64_t warmup_;  // w = warmup_steps, or ceil(warmup_ratio * T)
};

}  // namespace plait
