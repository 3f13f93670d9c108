#include "plait/config/setting_tree.h"

#include "plait/base/error.h"
#include "plait/base/utf8.h"

namespace plait {

namespace {
void check_text(const std::string& text, const std::string& origin_name) {
  if (text.size() > kMaxSettingBytes)
    throw_error(ExitCode::kUsage, origin_name, ": ", text.size(), " bytes; a settings file has at most ", kMaxSettingBytes);
  size_t invalid = first_invalid_utf8(text).value_or(text.size());
  size_t line = 1;
  for (size_t at = 0; at < invalid; ++at) {
    unsigned char c = static_cast<unsigned char>(text[at]);
    if (c < 0x20 && c != '\n' && c != '\r' && c != '\t')
      throw_error(ExitCode::kUsage, origin_name, ":", line, ": control character ", static_cast<int>(c), " in a settings file");
    if (c == '\n') ++line;
  }
  if (invalid < text.size()) throw_error(ExitCode::kUsage, origin_name, ":", line, ": not UTF-8 text");
}

bool ends_with(const std::string& text, const std::string& tail) {
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}
}  // namespace

const SettingNode* SettingNode::find(const std::string& key) const {
  for (const auto& entry : entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

std::string SettingNode::summary() const {
  constexpr size_t kLongest = 60;
  std::string out;
  auto separate = [&](size_t index) {
    if (index > 0) out += ", ";
    return out.size() < kLongest;
  };
  switch (kind) {
    case Kind::kNull: out = "null"; break;
    case Kind::kScalar: out = text; break;
    case Kind::kSequence:
      out = "[";
      for (size_t i = 0; i < items.size() && separate(i); ++i) out += items[i].summary();
      out += "]";
      break;
    case Kind::kMap:
      out = "{";
      for (size_t i = 0; i < entries.size() && separate(i); ++i) out += entries[i].key + ": " + entries[i].value.summary();
      out += "}";
      break;
  }
  for (char& c : out)
    if (c == '\n' || c == '\r') c = ' ';
  if (out.size() > kLongest) {
    size_t cut = kLongest;
    while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xc0) == 0x80) --cut;
    out = out.substr(0, cut) + "...";
  }
  return out;
}

SettingNode parse_settings(const std::string& text, const std::string& origin_name) {
  check_text(text, origin_name);
  SettingNode root =
      ends_with(origin_name, ".json") ? detail::parse_json_settings(text, origin_name) : detail::parse_yaml_settings(text, origin_name);
  if (root.is_null()) {
    root.kind = SettingNode::Kind::kMap;
    root.origin = origin_name;
  }
  if (!root.is_map())
    throw_error(ExitCode::kUsage, origin_name, ": a settings file is a map of names to values, this one is \"", root.summary(), "\"");
  return root;
}

SettingNode parse_flag_value(const std::string& text, const std::string& flag_name) {
  SettingNode node;
  if (!text.empty() && (text[0] == '[' || text[0] == '{')) {
    check_text(text, flag_name);
    node = detail::parse_yaml_settings(text, flag_name);
  } else if (text != "~" && text != "null") {
    node.kind = SettingNode::Kind::kScalar;
    node.text = text;
  }
  // Every place inside the value is the command line.
  auto mark = [](auto& self, SettingNode& at) -> void {
    at.origin = "command line";
    for (auto& item : at.items) self(self, item);
    for (auto& entry : at.entries) {
      entry.origin = "command line";
      self(self, entry.value);
    }
  };
  mark(mark, node);
  return node;
}

}  // namespace plait
