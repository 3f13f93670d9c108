#include "apps/command_help.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "plait/base/error.h"
#include "plait/config/describe.h"
#include "plait/config/enum_names.h"
#include "plait/config/given_settings.h"
#include "plait/config/hugging_face.h"
#include "plait/config/setting_text.h"

namespace plait {

namespace {

constexpr size_t kWidth = 100, kFlagColumn = 34;

std::vector<std::string> words_of(const SettingInfo&, bool) { return {"true", "false"}; }
std::vector<std::string> words_of(const SettingInfo& info, const std::string&) { return info.words; }
template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
std::vector<std::string> words_of(const SettingInfo&, E) {
  return enum_choices<E>();
}
template <class Other, std::enable_if_t<!std::is_enum_v<Other>, int> = 0>
std::vector<std::string> words_of(const SettingInfo&, const Other&) {
  return {};
}

}  // namespace

std::string wrapped(const std::string& text, size_t indent, size_t width) {
  std::string out, line;
  auto end_line = [&] {
    if (!line.empty()) out += std::string(indent, ' ') + line + "\n";
    line.clear();
  };
  std::istringstream lines(text);
  for (std::string source; std::getline(lines, source);) {
    if (source.empty()) {
      end_line();
      out += "\n";
      continue;
    }
    std::istringstream words(source);
    for (std::string word; words >> word;) {
      if (!line.empty() && indent + line.size() + 1 + word.size() > width) end_line();
      line += (line.empty() ? "" : " ") + word;
    }
  }
  end_line();
  return out;
}

std::string help_text(const CommandHelp& help) {
  std::string out;
  for (const auto& form : help.usage) out += cat(out.empty() ? "usage: plait " : "       plait ", form, "\n");
  out += "\n" + wrapped(help.description, 0, kWidth);
  if (!help.flags.empty()) out += "\n";
  for (const auto& flag : help.flags) {
    std::string left = "  " + flag.name;
    if (flag.name[0] == '-' && !flag.value.empty()) left += " " + flag.value;
    std::string right = wrapped(flag.effect, kFlagColumn, kWidth + 20);
    if (left.size() + 2 <= kFlagColumn) right.replace(0, left.size(), left);
    else right = left + "\n" + right;
    out += right;
  }
  if (help.takes_settings)
    out += "\n" + wrapped(
                      "Every setting is a flag too: by its dotted name, or by the last part of it where only one setting has that; "
                      "docs/settings.md and --print-config show them all. '-' and '_' are alike in flags.",
                      0, kWidth);
  return out;
}

std::vector<SettingHelp> all_setting_help() {
  std::vector<SettingHelp> all;
  const Config defaults;
  describe(
      [&](const SettingInfo& info, const auto& field) {
        std::string value = setting_text(info, field);
        if (value == "\"\"" || value == "[]") value.clear();
        all.push_back({info.name, info.effect, info.unit, value, words_of(info, field), info.is_path});
      },
      defaults);
  return all;
}

std::vector<std::string> setting_flags() {
  const SettingNames names;
  std::set<std::string> flags;
  auto add = [&](const std::string& flag) {
    try {
      std::string setting = names.canonical_of_flag(flag);
      if (!setting.empty() && !names.is_section(setting)) flags.insert(flag);
    } catch (const Error&) {  // several settings end so: only the dotted names are flags
    }
  };
  for (const auto& setting : all_setting_help()) add(setting.name.substr(setting.name.rfind('.') + 1));
  for (const auto& shorthand : shorthands()) add(std::string(shorthand.name).substr(std::string(shorthand.name).rfind('.') + 1));
  for (const auto& name : hugging_face_names()) add(name.name);
  for (const char* name : {"model", "train_file", "valid_file", "work_dir", "task"}) add(name);
  return {flags.begin(), flags.end()};
}

std::vector<std::string> value_words(const std::string& value) {
  std::vector<std::string> words;
  if (value.find(" | ") == std::string::npos) return words;
  for (size_t at = 0; at <= value.size();) {
    size_t end = std::min(value.find(" | ", at), value.size());
    words.push_back(value.substr(at, end - at));
    at = end + 3;
  }
  return words;
}

}  // namespace plait
