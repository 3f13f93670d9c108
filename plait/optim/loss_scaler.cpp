#include "plait/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "plait/base/error.h"

namespace plait {

LossScaler::LossScaler(const LossScaleConfig& config, bool enabled) : config_(config), enabled_(enabled) {
  if (!enabled) return;
  auto check = [](bool ok, const char* setting, double value, const char* rule) {
    if (!ok) throw_error(ExitCode::kUsage, "train.loss_scale.", setting, ": ", value, " is not allowed: ", rule);
  };
  check(config.init_scale >= kMinScale && config.init_scale <= kMaxScale, "init_scale", config.init_scale, "it must be in [1, 16777216]");
  check(config.growth_factor >= 1.0 && std::isfinite(config.growth_factor), "growth_factor", config.growth_factor, "it must be 1 or more");
  check(config.backoff_factor > 0.0 && config.backoff_factor < 1.0, "backoff_factor", config.backoff_factor, "it must be in (0, 1)");
  check(config.growth_interval >= 1, "growth_interval", static_cast<double>(config.growth_interval), "it must be 1 or more");
  scale_ = config.init_scale;
}

void LossScaler::update(bool found_inf) {
  if (!enabled_) return;
  if (!config_.dynamic) {
    static_overflows_ = found_inf ? static_overflows_ + 1 : 0;
    exhausted_ = static_overflows_ >= kMaxStaticOverflows;
    return;
  }
  exhausted_ = found_inf && scale_ == kMinScale;
  if (found_inf) {
    scale_ = std::max(kMinScale, scale_ * config_.backoff_factor);
    good_steps_ = 0;
  } else if (++good_steps_ >= config_.growth_interval) {
    scale_ = std::min(kMaxScale, scale_ * config_.growth_factor);
    good_steps_ = 0;
  }
}

void LossScaler::restore(double scale, int64_t good_steps) {
  if (!enabled_) return;
  scale_ = scale;
  good_steps_ = good_steps;
  exhausted_ = false;
}

}  // namespace plait
