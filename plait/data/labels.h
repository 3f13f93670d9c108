// LabelMap: class names in id order, and the rule that turns what a file says into a class id (config.md "dataset.labels"):
// names given by the user or the model; else integers 0..n-1 as they are; else distinct texts in bytewise order.
// A value type; immutable once filled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

struct LabelMap {
  std::vector<std::string> names;  // class id -> name; empty = not known yet

  bool empty() const { return names.empty(); }
  int64_t size() const { return static_cast<int64_t>(names.size()); }

  // Class of a label as written in a file: its name, else its number when it is an integer in 0..size()-1. Nothing when unseen.
  std::optional<int64_t> find(std::string_view label) const;
};

// From the names in the settings. Throws Error(kUsage) when a name occurs twice or is empty.
LabelMap given_labels(const std::vector<std::string>& names);

// From the distinct labels of a training file, in any order: exactly the integers 0..n-1 keep their numbers, anything else is
// put in bytewise order.
LabelMap labels_of_training_file(std::vector<std::string> distinct);

// "a, b, c" and, past `limit` names, ", ... (n in all)". For messages.
std::string list_labels(const LabelMap& labels, size_t limit = 20);

}  // namespace plait
