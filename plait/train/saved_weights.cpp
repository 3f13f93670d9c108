#include "plait/train/saved_weights.h"

#include <charconv>
#include <filesystem>

#include "plait/base/error.h"
#include "plait/config/safetensors_header.h"

namespace plait {

namespace {

namespace fs = std::filesystem;
constexpr const char* kMark = "plait.step";

// Empty folders hold nothing to lose; of others one weight file must carry the mark.
bool may_be_replaced(const fs::path& folder) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed)) return false;
  bool empty = true;
  for (const auto& item : fs::directory_iterator(folder, failed)) {
    empty = false;
    if (item.path().extension() != ".safetensors") continue;
    try {
      return read_safetensors_header(item.path().string()).metadata.contains(kMark);
    } catch (const Error&) {
      return false;
    }
  }
  return empty && !failed;
}

}  // namespace

bool SavedWeights::due(int64_t step) const {
  const SaveConfig& save = config_.save;
  if (save.strategy == SaveStrategy::kNo) return false;
  if (save.strategy == SaveStrategy::kSteps) return (step + 1) % save.interval == 0;
  return (step + 1) % plan_.steps_per_epoch == 0 && (step + 1) / plan_.steps_per_epoch % save.interval == 0;
}

std::string SavedWeights::folder(int64_t step) const { return cat(config_.work_dir, "/weights/step_", step + 1); }

std::map<std::string, std::string> SavedWeights::mark(int64_t step) const { return {{kMark, cat(step + 1)}}; }

void SavedWeights::check_folders() const {
  if (config_.save.strategy == SaveStrategy::kNo) return;
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(config_.work_dir + "/weights", ignored)) {
    std::string name = item.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step_")) continue;
    auto [end, failed] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    bool mine = failed == std::errc() && end == name.data() + name.size() && step >= 1 && step <= plan_.num_steps && due(step - 1);
    if (mine && !may_be_replaced(item.path()))
      throw_error(ExitCode::kUsage, "train.save would write ", folder(step - 1),
                  ", which is there already and was not saved by plait; move it away or give another folder with --work_dir");
  }
}

void SavedWeights::written(int64_t step, const std::function<void(const std::string&)>& say) {
  folders_.push_back(folder(step));
  while (config_.save.keep > 0 && static_cast<int64_t>(folders_.size()) > config_.save.keep) {
    // Under another name first: who looks meanwhile sees a whole folder or none.
    std::string old = folders_.front(), leaving = old + ".removed";
    folders_.pop_front();
    std::error_code failed;
    fs::remove_all(leaving, failed);
    if (!failed) fs::rename(old, leaving, failed);
    if (!failed) fs::remove_all(leaving, failed);
    if (failed) say(cat("warning: ", old, " cannot be removed: ", failed.message()));
  }
}

}  // namespace plait
