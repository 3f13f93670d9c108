// SettingNode: a settings file as written, before any meaning: maps, sequences and scalars as text, each with the
// place it stands at. YAML merges (<<:) and aliases are already resolved, duplicate keys are already refused, depth
// (kMaxSettingDepth), nodes (kMaxSettingNodes) and size (kMaxSettingBytes) are bounded. Scalars stay text, so that
// "no", 010 and 2e-5 mean what the setting that reads them says.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace plait {

inline constexpr size_t kMaxSettingBytes = 4u << 20;
inline constexpr size_t kMaxSettingDepth = 32;
inline constexpr size_t kMaxSettingNodes = 200000;

struct SettingNode;

struct SettingEntry;

struct SettingNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  std::string text;                   // scalar
  bool quoted = false;                // "no" in quotes is a word, never a truth value
  std::string origin;                 // "config.yaml:9" or "command line"
  std::vector<SettingNode> items;     // sequence
  std::vector<SettingEntry> entries;  // map, in file order
  bool reused = false;                // top level only: its anchor is used elsewhere in the file

  bool is_null() const { return kind == Kind::kNull; }
  bool is_map() const { return kind == Kind::kMap; }
  // The value of `key` in a map, or nullptr.
  const SettingNode* find(const std::string& key) const;
  // One line for messages: the scalar's text, [a, b], {k: v}; cut at 60 characters.
  std::string summary() const;
};

struct SettingEntry {
  std::string key;
  std::string origin;  // of the key
  SettingNode value;
};

// Parses a whole document; `origin_name` is the file name messages start with; names that end in .json are read as
// JSON, everything else as YAML. An empty document is an empty map. Error(kUsage) names file, line and rule.
SettingNode parse_settings(const std::string& text, const std::string& origin_name);

// A value from the command line: [..] and {..} are read as YAML, "~" and "null" are null, anything else is a scalar as it stands.
SettingNode parse_flag_value(const std::string& text, const std::string& flag_name);

namespace detail {
SettingNode parse_yaml_settings(const std::string& text, const std::string& origin_name);
SettingNode parse_json_settings(const std::string& text, const std::string& origin_name);
}  // namespace detail

}  // namespace plait
