#include <algorithm>
#include <cctype>

#include "plait/config/describe.h"
#include "plait/config/load_config.h"
#include "plait/config/scalar.h"
#include "plait/config/setting_text.h"

namespace plait {

namespace {

std::vector<std::string> split_dots(const std::string& dotted) {
  std::vector<std::string> out(1);
  for (char c : dotted) {
    if (c == '.') out.emplace_back();
    else out.back().push_back(c);
  }
  return out;
}

// Writes nested maps from dotted names; the table keeps the names of a section together.
class Printer {
 public:
  template <class Field>
  void operator()(const SettingInfo& info, const Field& field) {
    std::vector<std::string> parts = split_dots(info.name);
    size_t shared = 0;
    while (shared < open_.size() && shared + 1 < parts.size() && open_[shared] == parts[shared]) ++shared;
    open_.resize(shared);
    while (open_.size() + 1 < parts.size()) {
      out_ += std::string(2 * open_.size(), ' ') + parts[open_.size()] + ":\n";
      open_.push_back(parts[open_.size()]);
    }
    out_ += std::string(2 * open_.size(), ' ') + parts.back() + ": " + setting_text(info, field) + "\n";
  }
  std::string take() { return std::move(out_); }

 private:
  std::vector<std::string> open_;
  std::string out_;
};

}  // namespace

std::string yaml_string(const std::string& text) {
  bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-';
  });
  plain = plain && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/') && !parse_bool_text(text) && text != "null" &&
          text != "Null" && text != "NULL";
  if (plain) return text;
  std::string out = "\"";
  for (char c : text) {
    unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      const char* digits = "0123456789abcdef";
      out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string print_config(const Config& config) {
  Printer printer;
  describe(printer, config);
  return printer.take();
}

}  // namespace plait
