// From a settings file, flags and --set to one resolved, validated Config. Rank independent: every rank that reads the same file
// and flags gets the same Config or the same Error(kUsage).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plait/config/config.h"

namespace plait {

struct CommandLine {
  std::string config_path;  // "" = flags only
  std::vector<std::pair<std::string, std::string>>
      flags;                      // name without leading dashes ('-' and '_' alike), value; a bare flag comes as "true"
  std::vector<std::string> sets;  // "a.b=c", wins over file and flags
};

struct SettingsTrace;

// Which way of writing settings a file is.
enum class SettingsForm { kNative, kHuggingFace, kModelScope, kDeepSpeed };

// `world_size` 0: no launcher yet, the world is the product of the sizes. `notices` (may be null) gets lines for people: replaced sizes,
// values without effect, numbers such as 010 (these begin with "warning: "); show them once (rank 0).
// Relative paths of the file are made absolute from the file's folder, those of flags from the current folder. `trace` (may be null) is
// filled on the way, also when this throws.
Config load_config(const CommandLine& command_line, int64_t world_size, std::vector<std::string>* notices, SettingsTrace* trace = nullptr);

// The same for a text in memory; `origin_name` stands for the file's path (.json = JSON).
Config config_from_text(const std::string& text, const std::string& origin_name, const CommandLine& command_line = {},
                        int64_t world_size = 0, std::vector<std::string>* notices = nullptr, SettingsTrace* trace = nullptr);

// Every setting as native YAML; read back it gives the same settings (tests compare it).
std::string print_config(const Config& config);

// docs/settings.md, from the table of settings.
std::string settings_reference_markdown();

}  // namespace plait
