#include "plait/train/progress.h"

#include <unistd.h>

#include <cstdio>

#include "plait/base/log.h"

namespace plait {

namespace {

std::string decimals(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string clock_text(double seconds) {
  auto s = static_cast<int64_t>(seconds + 0.5);
  char text[64];
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", static_cast<long>(s / 3600), static_cast<long>(s / 60 % 60),
                  static_cast<long>(s % 60));
  else std::snprintf(text, sizeof text, "%ld:%02ld", static_cast<long>(s / 60), static_cast<long>(s % 60));
  return text;
}

Progress::Progress(const TrainConfig& config, bool active)
    : active_(active), bar_(active && config.progress_bar && ::isatty(STDERR_FILENO) == 1), every_steps_(config.logging_steps),
      every_(bar_ ? 0.1 : config.log_interval_seconds) {}

void Progress::update(const ProgressPoint& p) {
  if (!active_) return;
  auto now = Clock::now();
  if (first_step_ < 0) {
    first_step_ = p.step - 1;
  }
  bool due = now - last_ >= every_ || p.step == p.num_steps;
  if (!bar_ && every_steps_ > 0) due = p.step % every_steps_ == 0 || p.step == p.num_steps;
  if (!due) return;
  last_ = now;
  double elapsed = std::chrono::duration<double>(now - begin_).count();
  double left = elapsed / static_cast<double>(p.step - first_step_) * static_cast<double>(p.num_steps - p.step);
  std::string facts =
      cat("step ", p.step, "/", p.num_steps, "  epoch ", decimals(p.epoch, "%.2f"), "  loss ", decimals(p.loss, "%.4f"), "  lr ",
          decimals(p.learning_rate, "%.3g"), "  ", decimals(p.tokens_per_second, "%.0f"), " tokens/s  left ", clock_text(left));
  if (bar_) draw_bar(p, facts);
  else log_info(facts);
}

void Progress::draw_bar(const ProgressPoint& p, const std::string& facts) {
  constexpr int64_t kWidth = 24;
  int64_t filled = p.num_steps > 0 ? kWidth * p.step / p.num_steps : kWidth;
  std::string bar = "\r[" + std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kWidth - filled), '.') + "] " +
                    facts + "\x1b[K";
  if (::write(STDERR_FILENO, bar.data(), bar.size()) < 0) return;
  open_ = true;
  if (p.step == p.num_steps) break_line();
}

void Progress::break_line() {
  if (open_ && ::write(STDERR_FILENO, "\n", 1) < 0) return;
  open_ = false;
}

}  // namespace plait
