#include "plait/config/setting_info.h"

namespace plait {

std::string Range::text() const {
  bool low_end = std::isfinite(low), high_end = std::isfinite(high);
  if (low_end && high_end) return cat(low_open ? "(" : "[", low, ", ", high, high_open ? ")" : "]");
  std::string finite = high_open ? " and finite" : "";
  if (low_end) return cat(low_open ? "> " : ">= ", low, finite);
  if (high_end) return cat(high_open ? "< " : "<= ", high);
  return "";
}

std::string Range::nearest_valid(double value) const {
  if (value <= low) return low_open ? "" : cat(low);
  if (value >= high) return high_open ? "" : cat(high);
  return "";
}

}  // namespace plait
