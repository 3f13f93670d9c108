#include "plait/config/setting_info.h"

#include <algorithm>
#include <limits>

namespace plait {

std::string Range::text() const {
  bool low_end = std::isfinite(low), high_end = std::isfinite(high);
  if (low_end && high_end) return cat(low_open ? "(" : "[", low, ", ", high, high_open ? ")" : "]");
  std::string finite = high_open ? " and finite" : "";
  if (low_end) return cat(low_open ? "> " : ">= ", low, finite);
  if (high_end) return cat(high_open ? "< " : "<= ", high);
  return "";
}

std::optional<double> Range::nearest_valid(double value) const {
  const double inside = std::min(1.0, (high - low) / 100);  // how far a number to recommend lies from an open end
  if (value <= low) return low_open ? low + inside : low;
  if (value < high || std::isnan(value)) return std::nullopt;
  if (std::isinf(high) && high_open) return std::numeric_limits<double>::max();
  return high_open ? high - inside : high;
}

std::string rule_of_words(const std::string& word, const std::vector<std::string>& words, const std::string& otherwise) {
  std::string near = nearest(word, words);
  return cat("one of ", join(words), near.empty() ? cat("; nearest valid value ", otherwise) : cat("; nearest: ", near));
}

}  // namespace plait
