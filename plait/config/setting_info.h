// SettingInfo: what the table of settings (describe.h) says about one setting.
#pragma once

#include <cmath>
#include <optional>
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
  // The allowed value closest to `value`, which is outside; by an open end one a little inside, by "finite" the largest number. Nothing for NaN.
  std::optional<double> nearest_valid(double value) const;
};

// What several settings allow.
namespace detail {
inline constexpr double kLargestCount = 1e12;  // rows, steps, tokens
inline constexpr double kLargestSize = 1e6;    // ranks, micro-batches, rows of a micro-batch: three of them still fit 64 bits
inline Range counts(double low) { return {low, kLargestCount}; }
inline Range sizes(double low) { return {low, kLargestSize}; }
inline Range finite_from(double low) { return {low, INFINITY, false, true}; }
}  // namespace detail

struct SettingInfo {
  std::string name;    // dotted, as in the native YAML
  std::string effect;  // one line
  std::string unit{};
  Range range{};
  std::string zero_word{};           // the word that stands for 0, or for "none" of an optional
  std::vector<std::string> words{};  // allowed words of a text setting, the default first; empty = any text
  bool is_path = false;
  std::vector<std::string> aliases{};  // other dotted names of the same setting
};

// "one of auto, none; nearest: none" for a message about `word`, which is none of `words`; where no word is like it: "...; nearest valid
// value auto", `otherwise`, mostly the default.
std::string rule_of_words(const std::string& word, const std::vector<std::string>& words, const std::string& otherwise);

}  // namespace plait
