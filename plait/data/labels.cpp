#include "plait/data/labels.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "plait/base/error.h"

namespace plait {

namespace {

// A canonical non-negative integer ("0", "12"; not "01", "+1", "1.0").
std::optional<int64_t> class_number(std::string_view text) {
  int64_t value = 0;
  auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool whole = fault == std::errc() && end == text.data() + text.size();
  if (!whole || value < 0 || (text.size() > 1 && text[0] == '0') || text[0] == '-') return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> LabelMap::find(std::string_view label) const {
  auto at = std::find(names.begin(), names.end(), label);
  if (at != names.end()) return at - names.begin();
  auto number = class_number(label);
  return number && *number < size() ? number : std::nullopt;
}

LabelMap given_labels(const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const auto& name : names) {
    if (name.empty()) throw_error(ExitCode::kUsage, "dataset.labels holds an empty name; every class needs one");
    if (!seen.insert(name).second) throw_error(ExitCode::kUsage, "dataset.labels holds \"", name, "\" twice; class names are distinct");
  }
  return {names};
}

LabelMap labels_of_training_file(std::vector<std::string> distinct) {
  int64_t n = static_cast<int64_t>(distinct.size());
  bool numbers = std::all_of(distinct.begin(), distinct.end(), [&](const std::string& label) {
    auto number = class_number(label);
    return number && *number < n;  // n distinct integers below n are exactly 0..n-1
  });
  LabelMap labels;
  if (numbers) {
    for (int64_t i = 0; i < n; ++i) labels.names.push_back(cat(i));
  } else {
    std::sort(distinct.begin(), distinct.end());  // std::string compares bytes as unsigned
    labels.names = std::move(distinct);
  }
  return labels;
}

std::string list_labels(const LabelMap& labels, size_t limit) {
  std::vector<std::string> shown(labels.names.begin(),
                                 labels.names.begin() + static_cast<std::ptrdiff_t>(std::min(limit, labels.names.size())));
  std::string text = join(shown);
  if (labels.names.size() > limit) text += cat(", ... (", labels.names.size(), " in all)");
  return text;
}

}  // namespace plait
