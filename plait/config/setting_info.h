// SettingInfo: what the table of settings (describe.h) says about one setting.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "plait/base/text.h"

namespace plait {

// Allowed numbers; an infinite end is no limit, unless it is closed on purpose (norm_type).
struct Range {
  double low = -INFINITY, high = INFINITY;
  bool low_open = false, high_open = false;

  bool holds(double value) const { return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high); }
  // "[0, 1)", ">= 1", "> 0 and finite"
  std::string text() const;
  // The allowed value closest to `value`, or "" when that end is open.
  std::string nearest_valid(double value) const;
};

struct SettingInfo {
  std::string name;    // dotted, as in the native YAML
  std::string effect;  // one line
  std::string unit{};
  Range range{};
  std::string zero_word{};           // the word that stands for 0, or for "none" of an optional
  std::vector<std::string> words{};  // allowed words of a text setting; empty = any text
  bool is_path = false;
  std::vector<std::string> aliases{};  // other dotted names of the same setting
};

}  // namespace plait
