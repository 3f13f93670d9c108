// Small words for tests of settings: load a text, catch the message.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plait/base/error.h"
#include "plait/config/load_config.h"

namespace plait::testing {

struct Loaded {
  Config config;
  std::string error;  // "" when it loaded
  int code = 0;
  std::vector<std::string> notices;
};

inline Loaded load_text(const std::string& text, const std::string& name = "config.yaml", const CommandLine& command_line = {},
                        int64_t world_size = 0) {
  Loaded out;
  try {
    out.config = config_from_text(text, name, command_line, world_size, &out.notices);
  } catch (const Error& error) {
    out.error = error.what();
    out.code = static_cast<int>(error.code());
  }
  return out;
}

inline Loaded load_flags(std::vector<std::pair<std::string, std::string>> flags, std::vector<std::string> sets = {},
                         const std::string& text = "", int64_t world_size = 0) {
  return load_text(text, "config.yaml", {"", std::move(flags), std::move(sets)}, world_size);
}

inline bool contains(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

inline bool has_notice(const Loaded& loaded, const std::string& piece) {
  for (const auto& line : loaded.notices)
    if (contains(line, piece)) return true;
  return false;
}

}  // namespace plait::testing
