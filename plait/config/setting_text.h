// Values of settings as YAML text that reads back to the same value.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "plait/config/enum_names.h"
#include "plait/config/setting_info.h"

namespace plait {

// Plain where that is safe, else double-quoted.
std::string yaml_string(const std::string& text);

inline std::string setting_text(const SettingInfo& info, int64_t value) {
  return value == 0 && !info.zero_word.empty() ? info.zero_word : cat(value);
}
inline std::string setting_text(const SettingInfo&, double value) { return std::isinf(value) ? "inf" : cat(value); }
inline std::string setting_text(const SettingInfo& info, const std::optional<double>& value) {
  return value ? cat(*value) : info.zero_word;
}
inline std::string setting_text(const SettingInfo&, bool value) { return value ? "true" : "false"; }
inline std::string setting_text(const SettingInfo&, const std::string& value) { return yaml_string(value); }
template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
std::string setting_text(const SettingInfo&, E value) {
  return enum_word(value);
}
template <class Item>
std::string setting_text(const SettingInfo& info, const std::vector<Item>& values) {
  std::vector<std::string> items;
  SettingInfo plain;
  for (const auto& value : values) items.push_back(setting_text(plain, value));
  return "[" + join(items) + "]";
}

}  // namespace plait
