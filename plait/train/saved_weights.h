// SavedWeights: which steps write their weights into a Hugging Face folder work_dir/weights/step_N, and which of these folders go again.
// A folder of that name that plait did not write is never touched: its presence is refused before training begins.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "plait/config/config.h"
#include "plait/data/sampler.h"

namespace plait {

class SavedWeights {
 public:
  SavedWeights(const TrainConfig& config, const StepPlan& plan) : config_(config), plan_(plan) {}

  bool due(int64_t step) const;  // 0-based
  std::string folder(int64_t step) const;
  // Goes into the weight files, so that a later run knows the folder as plait's.
  std::map<std::string, std::string> mark(int64_t step) const;

  // Every rank, before training. Error(kUsage): a folder that this run would write is there and is none of plait's.
  void check_folders() const;
  // One rank, when the folder of `step` is complete: removes the oldest ones of this run beyond `keep`. What cannot be removed stays and is said.
  void written(int64_t step, const std::function<void(const std::string&)>& say);

 private:
  const TrainConfig& config_;
  StepPlan plan_;
  std::deque<std::string> folders_;  // of this run, oldest first
};

}  // namespace plait
