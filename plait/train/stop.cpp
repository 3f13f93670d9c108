#include "plait/train/stop.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "plait/base/text.h"

namespace plait {

int StopAgreement::after_step() {
  ++steps_since_;
  return steps_since_ < steps_until_ ? 0 : now();
}

int StopAgreement::now() {
  if (!stop_) return 0;
  const int64_t own = stop_->signal.load();
  if (mesh_.world().size() == 1) return static_cast<int>(own);
  constexpr int64_t kInterval = 50000, kMostSteps = 64;  // microseconds
  const int64_t elapsed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - asked_).count();
  at::Tensor news = at::empty({2}, at::kLong);
  news[0] = own;
  news[1] = elapsed / std::max<int64_t>(1, steps_since_);
  news = news.to(device_);
  mesh_.world().all_reduce(news, ReduceOp::kMax)->wait();
  news = news.cpu();
  steps_until_ = std::clamp<int64_t>(kInterval / std::max<int64_t>(1, news[1].item<int64_t>()), 1, kMostSteps);
  steps_since_ = 0;
  asked_ = Clock::now();
  return static_cast<int>(news[0].item<int64_t>());
}

std::string stop_text(int signal, int64_t step, int64_t num_steps) {
  return cat("stopped after step ", step, " of ", num_steps, " by signal ", signal, " (", ::strsignal(signal), ")");
}

}  // namespace plait
