// Progress: what a person sees of a run on rank 0: a bar on a terminal, a line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "plait/config/config.h"

namespace plait {

struct ProgressPoint {
  int64_t step = 0, num_steps = 0;
  double epoch = 0, loss = 0, learning_rate = 0, tokens_per_second = 0;
};

class Progress {
 public:
  // active: only the rank that talks. Bar when stderr is a terminal and the settings allow it.
  Progress(const TrainConfig& config, bool active);
  void update(const ProgressPoint& point);
  // Ends an open bar, so that another line can follow.
  void break_line();

 private:
  using Clock = std::chrono::steady_clock;
  void draw_bar(const ProgressPoint& point, const std::string& facts);

  bool active_, bar_, open_ = false;
  int64_t every_steps_;
  std::chrono::duration<double> every_;
  Clock::time_point begin_ = Clock::now(), last_{};
  int64_t first_step_ = -1;
};

// "1:02:03", "2:03"
std::string clock_text(double seconds);

}  // namespace plait
