// EarlyStop: whether training has stopped to get better. Counts evaluations in a row whose value is not better than the best one by
// more than min_delta. No communication: ranks that give it the same values get the same answers.
#pragma once

#include <cstdint>

#include "plait/config/config.h"

namespace plait {

class EarlyStop {
 public:
  EarlyStop(const EarlyStopConfig& config, bool higher_is_better) : config_(config), higher_(higher_is_better) {}

  // After each evaluation. True: training should stop now. Never true with patience 0.
  bool should_stop(double value) {
    if (first_ || (higher_ ? value - best_ : best_ - value) > config_.min_delta) {
      first_ = false;
      best_ = value;
      num_waited_ = 0;
    } else {
      ++num_waited_;
    }
    return config_.patience > 0 && num_waited_ >= config_.patience;
  }
  // The value to beat; 0 before the first evaluation.
  double best() const { return best_; }

 private:
  EarlyStopConfig config_;
  bool higher_;
  bool first_ = true;
  double best_ = 0;
  int64_t num_waited_ = 0;
};

}  // namespace plait
