// Layers of settings (file, then flags, then --set) laid over each other: what a flag replaces besides the setting of its own name.
// A layout size on the command line replaces the file's layout as a whole, and a line says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/given_settings.h"

namespace plait {

// The setting that replaces `name` when a flag gives it, as max_steps does max_epochs; "" when none.
std::string alternative_of(const std::string& name);

// The one word of a given setting, "" when not given. Error(kUsage) when it is a list or a map.
std::string given_word(const GivenSettings& given, const std::string& name);

// fp16 / bf16: true becomes train.dtype of this layer; a false stays for merge_layers.
void fold_precision(GivenSettings* layer);

// Lays `above` over `file`; of pairs such as max_steps and max_epochs a flag replaces the file's other one.
void merge_layers(GivenSettings* file, const GivenSettings& above);

// What the file said about the layout when the command line replaces it as a whole.
struct ReplacedLayout {
  bool replaced = false;
  std::vector<std::pair<std::string, GivenSetting>> sizes;  // left out on the command line
  std::optional<GivenSetting> pipeline, stage_layers, virtual_pipeline, world;
};

// Takes the file's layout out when `command` brings one; before merge_layers.
ReplacedLayout replace_layout(GivenSettings* file, const GivenSettings& command);

// After the sizes are resolved: pipeline_layers and virtual_pipeline_size of the file hold only while its pipeline size does.
void restore_stages(const ReplacedLayout& old, GivenSettings* merged, int64_t pipeline_size, std::vector<std::string>* notices);
void report_replaced(const ReplacedLayout& old, const GivenSettings& merged, const Config& config, int64_t world_size,
                     std::vector<std::string>* notices);

}  // namespace plait
