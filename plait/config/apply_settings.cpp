#include "plait/config/apply_settings.h"

#include <cstdlib>
#include <filesystem>
#include <type_traits>

#include "plait/base/error.h"
#include "plait/config/describe.h"
#include "plait/config/enum_names.h"
#include "plait/config/scalar.h"

namespace plait {

namespace {

class ApplySettings {
 public:
  ApplySettings(const GivenSettings& given, const std::string& file_folder, Config* config, std::vector<std::string>* notices)
      : given_(given), file_folder_(file_folder), config_(config), notices_(notices) {}

  template <class Field>
  void operator()(const SettingInfo& info, Field& field) {
    const GivenSetting* given = given_.find(info.name);
    if (given) {
      config_->origin[info.name] = given->origin;
      for (const auto& alias : info.aliases) config_->origin[alias] = given->origin;
      read(info, *given, field);
    }
    if constexpr (std::is_same_v<Field, std::string>)
      if (info.is_path) make_absolute(given, &field);
  }

 private:
  [[noreturn]] void refuse(const SettingInfo& info, const GivenSetting& given, const std::string& rule) const {
    std::string name = given.written == info.name ? info.name : cat(given.written, " (", info.name, ")");
    throw_error(ExitCode::kUsage, name, " ", given.value.summary(), " (", given.origin, ") is not ", rule);
  }

  const std::string& scalar(const SettingInfo& info, const GivenSetting& given, const std::string& rule) const {
    if (given.value.kind != SettingNode::Kind::kScalar) refuse(info, given, rule);
    return given.value.text;
  }

  void note_leading_zero(const SettingInfo& info, const GivenSetting& given, const std::string& text) {
    if (has_leading_zero(text))
      notices_->push_back(
          cat("warning: ", info.name, " ", text, " (", given.origin, ") is read as ", *parse_integer_text(text), ", not as octal"));
  }

  void read(const SettingInfo& info, const GivenSetting& given, int64_t& field) {
    std::string rule = info.zero_word.empty() ? "a whole number" : cat("a whole number or ", info.zero_word);
    const std::string& text = scalar(info, given, rule);
    if (!info.zero_word.empty() && text == info.zero_word) {
      field = 0;
      return;
    }
    field = whole_number(info, given, text, rule);
  }

  int64_t whole_number(const SettingInfo& info, const GivenSetting& given, const std::string& text, const std::string& rule) {
    auto value = parse_integer_text(text);
    if (!value) refuse(info, given, rule);
    note_leading_zero(info, given, text);
    return *value;
  }

  static std::string number_rule(const std::string& text) {
    return is_number_out_of_range(text) ? "in the range of a double, 2.2e-308 to 1.8e308" : "a number";
  }

  void read(const SettingInfo& info, const GivenSetting& given, double& field) {
    const std::string& text = scalar(info, given, "a number");
    auto value = parse_real_text(text);
    if (!value) refuse(info, given, number_rule(text));
    note_leading_zero(info, given, text);
    field = *value;
  }

  void read(const SettingInfo& info, const GivenSetting& given, std::optional<double>& field) {
    if (given.value.kind == SettingNode::Kind::kScalar && given.value.text == info.zero_word) {
      field.reset();
      return;
    }
    auto value = given.value.kind == SettingNode::Kind::kScalar ? parse_real_text(given.value.text) : std::nullopt;
    if (!value) refuse(info, given, cat("a number or ", info.zero_word));
    note_leading_zero(info, given, given.value.text);
    field = *value;
  }

  void read(const SettingInfo& info, const GivenSetting& given, bool& field) {
    auto value = parse_bool_text(scalar(info, given, "true or false"));
    if (!value) refuse(info, given, "true or false");
    field = *value;
  }

  void read(const SettingInfo& info, const GivenSetting& given, std::string& field) { field = scalar(info, given, "one text"); }

  template <class E>
  E word(const SettingInfo& info, const GivenSetting& given, const std::string& text, E otherwise) {
    auto value = parse_enum_word<E>(text);
    if (value) return *value;
    refuse(info, given, rule_of_words(text, enum_choices<E>(), enum_word(otherwise)));
  }

  template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
  void read(const SettingInfo& info, const GivenSetting& given, E& field) {
    field = word<E>(info, given, scalar(info, given, cat("one of ", join(enum_choices<E>()), "; nearest valid value ", enum_word(field))),
                    field);
  }

  // Items of a sequence; one scalar is a list of one, on the command line of several with commas between.
  std::vector<std::string> items(const SettingInfo& info, const GivenSetting& given) const {
    std::vector<std::string> out;
    const SettingNode& value = given.value;
    if (value.is_map()) refuse(info, given, "a list");
    if (value.kind == SettingNode::Kind::kScalar) {
      size_t begin = 0, comma;
      while (given.command_line && (comma = value.text.find(',', begin)) != std::string::npos) {
        out.push_back(value.text.substr(begin, comma - begin));
        begin = comma + 1;
      }
      if (!value.text.empty()) out.push_back(value.text.substr(begin));
    }
    for (const auto& item : value.items) {
      if (item.kind != SettingNode::Kind::kScalar)
        throw_error(ExitCode::kUsage, info.name, " (", item.origin, ") has an item that is not one word: ", item.summary(),
                    item.is_null() ? " (quote it if it is meant as text)" : "");
      out.push_back(item.text);
    }
    return out;
  }

  void read(const SettingInfo& info, const GivenSetting& given, std::vector<std::string>& field) { field = items(info, given); }
  void read(const SettingInfo& info, const GivenSetting& given, std::vector<int64_t>& field) {
    field.clear();
    for (const auto& item : items(info, given)) field.push_back(whole_number(info, given, item, "a list of whole numbers"));
  }
  void read(const SettingInfo& info, const GivenSetting& given, std::vector<Metric>& field) {
    field.clear();
    for (const auto& item : items(info, given)) field.push_back(word(info, given, item, Metric::kLoss));
  }

  void make_absolute(const GivenSetting* given, std::string* path) const {
    namespace fs = std::filesystem;
    if (path->empty()) return;
    const char* home = std::getenv("HOME");
    if (home && (*path == "~" || path->rfind("~/", 0) == 0)) *path = home + path->substr(1);
    fs::path base = given && !given->command_line ? fs::absolute(file_folder_.empty() ? "." : file_folder_) : fs::current_path();
    fs::path whole = (base / *path).lexically_normal();
    if (!whole.has_filename() && whole.has_relative_path()) whole = whole.parent_path();  // "dir/" is dir
    *path = whole.string();
  }

  const GivenSettings& given_;
  const std::string& file_folder_;
  Config* config_;
  std::vector<std::string>* notices_;
};

}  // namespace

void apply_settings(const GivenSettings& given, const std::string& file_folder, Config* config, std::vector<std::string>* notices) {
  describe(ApplySettings(given, file_folder, config, notices), *config);
}

}  // namespace plait
