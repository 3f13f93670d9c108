#include "plait/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>

#include "plait/base/error.h"

namespace plait {

LrScheduler::LrScheduler(const LrSchedulerConfig& config, double lr, int64_t total_updates)
    : kind_(config.type), lr_(lr), total_(total_updates) {
  if (total_updates < 1) throw_error(ExitCode::kUsage, "the run has ", total_updates, " optimizer updates: it must have 1 or more");
  if (!(lr >= 0.0) || !std::isfinite(lr)) throw_error(ExitCode::kUsage, "train.optimizer.params.lr: ", lr, " must be 0 or more");
  if (config.warmup_steps < 0)
    throw_error(ExitCode::kUsage, "train.lr_scheduler.warmup_steps: ", config.warmup_steps, " must be 0 or more");
  if (!(config.warmup_ratio >= 0.0 && config.warmup_ratio <= 1.0))
    throw_error(ExitCode::kUsage, "train.lr_scheduler.warmup_ratio: ", config.warmup_ratio, " must be in [0, 1]");
  warmup_ = config.warmup_steps > 0 ? config.warmup_steps
                                    : static_cast<int64_t>(std::ceil(config.warmup_ratio * static_cast<double>(total_updates)));
}

double LrScheduler::lr(int64_t update) const {
  if (update < warmup_) return lr_ * static_cast<double>(update) / static_cast<double>(warmup_);
  if (kind_ == LrSchedulerKind::kConstant) return lr_;
  const int64_t k = std::min(update, total_);
  const double span = static_cast<double>(std::max<int64_t>(1, total_ - warmup_));
  if (kind_ == LrSchedulerKind::kLinear) return lr_ * static_cast<double>(std::max<int64_t>(0, total_ - k)) / span;
  const double progress = std::min(1.0, static_cast<double>(std::max<int64_t>(0, k - warmup_)) / span);
  return lr_ * 0.5 * (1.0 + std::cos(3.14159265358979323846 * progress));
}

}  // namespace plait
