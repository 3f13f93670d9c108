// LrScheduler: the learning rate of each optimizer update as a closed formula (docs/training.md), so it has no state, and accumulation,
// layout, resume and skipped micro-batches cannot move it. As in Hugging Face, a warm-up starts at 0 unless warmup_start_factor says else.
// lr(k) = warm-up(k) x schedule(n). n, the period, is the update or (by_epoch) its epoch. A schedule that stretches over the run
// (linear, cosine, polynomial, ramp without total_periods, counted in updates) begins at the end of the warm-up, as in Hugging Face;
// every other one counts from the first update, as in torch, and the warm-up multiplies it.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/config/config.h"

namespace plait {

class LrScheduler {
 public:
  // total_updates: T, all optimizer updates of the run, >= 1. updates_per_epoch: only by_epoch needs it.
  // Throws Error(kUsage): settings out of range.
  LrScheduler(const LrSchedulerConfig& config, double lr, int64_t total_updates, int64_t updates_per_epoch = 0);

  // Learning rate of update k (0-based). From the schedule's end on: what its formula gives there (cosine does not rise again).
  double lr(int64_t update) const;
  int64_t warmup_updates() const { return warmup_; }
  int64_t total_updates() const { return total_; }

 private:
  double schedule(int64_t period) const;
  double warmed_up(int64_t update, double value) const;

  LrSchedulerConfig config_;
  double lr_;
  int64_t total_;
  int64_t updates_per_epoch_;
  int64_t warmup_;  // w = warmup_steps, or ceil(warmup_ratio * T)
  int64_t begin_;   // update at which period 0 begins
  int64_t length_;  // N: periods until the end of a schedule that has one, >= 1
};

}  // namespace plait
