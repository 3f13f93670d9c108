#include "plait/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>

#include "plait/base/error.h"

namespace plait {

namespace {

bool has_length(LrSchedulerKind kind) {
  return kind == LrSchedulerKind::kLinear || kind == LrSchedulerKind::kCosine || kind == LrSchedulerKind::kPolynomial ||
         kind == LrSchedulerKind::kRamp;
}

}  // namespace

LrScheduler::LrScheduler(const LrSchedulerConfig& config, double lr, int64_t total_updates, int64_t updates_per_epoch)
    : config_(config), lr_(lr), total_(total_updates), updates_per_epoch_(updates_per_epoch) {
  if (total_updates < 1) throw_error(ExitCode::kUsage, "the run has ", total_updates, " optimizer updates: it must have 1 or more");
  if (!(lr >= 0.0) || !std::isfinite(lr)) throw_error(ExitCode::kUsage, "train.optimizer.params.lr: ", lr, " must be 0 or more");
  if (config.warmup_steps < 0)
    throw_error(ExitCode::kUsage, "train.lr_scheduler.warmup_steps: ", config.warmup_steps, " must be 0 or more");
  if (!(config.warmup_ratio >= 0.0 && config.warmup_ratio <= 1.0))
    throw_error(ExitCode::kUsage, "train.lr_scheduler.warmup_ratio: ", config.warmup_ratio, " must be in [0, 1]");
  if (config.step_size < 1) throw_error(ExitCode::kUsage, "train.lr_scheduler.step_size: ", config.step_size, " must be 1 or more");
  PLAIT_CHECK(!config.by_epoch || updates_per_epoch >= 1, "a schedule by epoch needs the number of updates of an epoch");
  warmup_ = config.warmup_steps > 0 ? config.warmup_steps
                                    : static_cast<int64_t>(std::ceil(config.warmup_ratio * static_cast<double>(total_updates)));
  begin_ = has_length(config.type) && config.total_periods == 0 && !config.by_epoch ? warmup_ : 0;
  length_ = config.total_periods;
  if (length_ == 0) length_ = config.by_epoch ? (total_ + updates_per_epoch - 1) / updates_per_epoch : total_ - begin_;
  length_ = std::max<int64_t>(1, length_);
}

double LrScheduler::lr(int64_t update) const {
  int64_t period = std::max<int64_t>(0, update - begin_);
  if (config_.by_epoch) period = update / updates_per_epoch_;
  // A run of T updates that is all warm-up has no period left; what follows it is the end.
  if (begin_ >= total_ && update >= begin_) period = length_;
  // The line's formula at 0 rounds; a warm-up before it rises to the rate itself.
  bool before_line = config_.type == LrSchedulerKind::kLinear && update < begin_;
  return warmed_up(update, before_line ? lr_ : schedule(period));
}

double LrScheduler::schedule(int64_t period) const {
  const auto n = static_cast<double>(std::min(period, length_)), end = static_cast<double>(length_);
  switch (config_.type) {
    case LrSchedulerKind::kConstant: return lr_;
    case LrSchedulerKind::kLinear: return lr_ * (end - n) / end;
    case LrSchedulerKind::kCosine:
      return config_.min_lr + (lr_ - config_.min_lr) * 0.5 * (1.0 + std::cos(3.14159265358979323846 * (n / end)));
    case LrSchedulerKind::kPolynomial: return config_.min_lr + (lr_ - config_.min_lr) * std::pow(1.0 - n / end, config_.power);
    case LrSchedulerKind::kRamp: return lr_ * (config_.start_factor + (config_.end_factor - config_.start_factor) * (n / end));
    case LrSchedulerKind::kStep: return lr_ * std::pow(config_.gamma, static_cast<double>(period / config_.step_size));
    case LrSchedulerKind::kMultiStep: {
      auto passed =
          std::count_if(config_.milestones.begin(), config_.milestones.end(), [=](int64_t milestone) { return milestone <= period; });
      return lr_ * std::pow(config_.gamma, static_cast<double>(passed));
    }
    case LrSchedulerKind::kExponential: return lr_ * std::pow(config_.gamma, static_cast<double>(period));
    case LrSchedulerKind::kInverseSqrt: {
      // Vaswani et al., arXiv 1706.03762, section 5.3, without the factor of the width; its warm-up is part of the formula.
      const double k = static_cast<double>(period + 1), rising = warmup_ > 0 ? k * std::pow(static_cast<double>(warmup_), -1.5) : INFINITY;
      return lr_ * std::min(std::pow(k, -0.5), rising);
    }
  }
  PLAIT_CHECK(false, "kind of schedule");
}

double LrScheduler::warmed_up(int64_t update, double value) const {
  if (update >= warmup_ || config_.type == LrSchedulerKind::kInverseSqrt) return value;
  const auto k = static_cast<double>(update), w = static_cast<double>(warmup_);
  const double start = config_.warmup_start_factor;
  switch (config_.warmup) {
    case WarmupKind::kLinear: return start == 0.0 ? value * k / w : value * (1.0 - (1.0 - k / w) * (1.0 - start));
    case WarmupKind::kConstant: return value * start;
    case WarmupKind::kExponential: return value * std::pow(start, 1.0 - k / w);
  }
  PLAIT_CHECK(false, "kind of warm-up");
}

}  // namespace plait
