// LossScaler: the factor the loss of a float16 run is multiplied by so that small gradients do not vanish. Dynamic (Micikevicius et al.,
// arXiv 1710.03740, as torch.amp.GradScaler): halves after an overflow, doubles after `growth_interval` good steps in a row.
// Static (dynamic false): init_scale stays; overflows are skipped all the same. Off (other types): the scale is 1 and never moves.
// Rank rule: every rank calls update() with the same found_inf (the global norm is not finite), so all hold the same scale.
#pragma once

#include <cstdint>

#include "plait/config/config.h"

namespace plait {

class LossScaler {
 public:
  static constexpr double kMinScale = 1.0;         // an overflow at 1 is the model's own: a smaller scale would only hide it
  static constexpr double kMaxScale = 16777216.0;  // 2^24: growing further gains nothing and nears fp32's own limit

  static constexpr int64_t kMaxStaticOverflows = 10;  // in a row: nothing would train any more

  // Throws Error(kUsage): factors or scale out of range (only when enabled).
  LossScaler(const LossScaleConfig& config, bool enabled);

  bool enabled() const { return enabled_; }
  double scale() const { return scale_; }
  // After each step, skipped (found_inf) or not.
  void update(bool found_inf);
  // The next step will not get better by itself: an overflow at the smallest scale, or kMaxStaticOverflows in a row at a static one.
  bool exhausted() const { return exhausted_; }

  // For checkpoints.
  int64_t good_steps() const { return good_steps_; }
  void restore(double scale, int64_t good_steps);

 private:
  LossScaleConfig config_;
  bool enabled_;
  bool exhausted_ = false;
  double scale_ = 1.0;
  int64_t good_steps_ = 0;        // in a row
  int64_t static_overflows_ = 0;  // in a row
};

}  // namespace plait
