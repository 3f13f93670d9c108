// JSON through nlohmann's SAX parser, with line numbers from an iterator that counts newlines as the parser reads.
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/config/setting_tree.h"

namespace plait::detail {

namespace {

struct ReadPosition {
  size_t line = 1;  // of the next character
  bool last_was_newline = false;
};

class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, ReadPosition* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    position_->last_was_newline = *at_ == '\n';
    if (*at_ == '\n') ++position_->line;
    ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  ReadPosition* position_;
};

using Json = nlohmann::json;

class JsonTreeBuilder : public nlohmann::json_sax<Json> {
 public:
  JsonTreeBuilder(const std::string& origin_name, const ReadPosition& position) : origin_name_(origin_name), position_(position) {}
  SettingNode take_root() { return std::move(root_); }

  bool null() override { return add(make(SettingNode::Kind::kNull, false)); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false", false, false); }
  bool number_integer(number_integer_t value) override { return scalar(cat(value), false, true); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(cat(value), false, true); }
  bool number_float(number_float_t, const std::string& text) override { return scalar(text, false, true); }
  bool string(std::string& value) override { return scalar(value, true, false); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(SettingNode::Kind::kMap); }
  bool start_array(size_t) override { return open(SettingNode::Kind::kSequence); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    Open& top = stack_.back();
    auto [it, is_new] = top.seen.emplace(name, here(false));
    if (!is_new) throw_error(ExitCode::kUsage, here(false), ": duplicate key ", name, " (first at ", it->second, ")");
    top.key = name;
    top.key_origin = it->second;
    return true;
  }
  bool parse_error(size_t, const std::string& token, const nlohmann::detail::exception& error) override {
    std::string reason = error.what();
    if (auto at = reason.find(": "); at != std::string::npos) reason = reason.substr(at + 2);
    throw_error(ExitCode::kUsage, here(false), ": not JSON: ", reason);
  }

 private:
  struct Open {
    SettingNode node;
    std::string key, key_origin;
    std::map<std::string, std::string> seen;
  };

  // A number is known to be over only after one character more, which may be a newline.
  std::string here(bool after_number) const {
    return cat(origin_name_, ":", position_.line - (after_number && position_.last_was_newline ? 1 : 0));
  }
  SettingNode make(SettingNode::Kind kind, bool after_number) const {
    SettingNode node;
    node.kind = kind;
    node.origin = here(after_number);
    return node;
  }
  bool scalar(std::string text, bool quoted, bool is_number) {
    SettingNode node = make(SettingNode::Kind::kScalar, is_number);
    node.text = std::move(text);
    node.quoted = quoted;
    return add(std::move(node));
  }
  bool open(SettingNode::Kind kind) {
    if (stack_.size() >= kMaxSettingDepth) throw_error(ExitCode::kUsage, here(false), ": nested deeper than ", kMaxSettingDepth, " levels");
    stack_.push_back({make(kind, false), {}, {}, {}});
    return true;
  }
  bool close() {
    SettingNode node = std::move(stack_.back().node);
    stack_.pop_back();
    return add(std::move(node));
  }
  bool add(SettingNode node) {
    if (++num_nodes_ > kMaxSettingNodes) throw_error(ExitCode::kUsage, here(false), ": more than ", kMaxSettingNodes, " values");
    if (stack_.empty()) {
      root_ = std::move(node);
    } else if (Open& top = stack_.back(); top.node.is_map()) {
      top.node.entries.push_back({top.key, top.key_origin, std::move(node)});
    } else {
      top.node.items.push_back(std::move(node));
    }
    return true;
  }

  const std::string& origin_name_;
  const ReadPosition& position_;
  std::vector<Open> stack_;
  SettingNode root_;
  size_t num_nodes_ = 0;
};

}  // namespace

SettingNode parse_json_settings(const std::string& text, const std::string& origin_name) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return {};
  ReadPosition position;
  JsonTreeBuilder builder(origin_name, position);
  CountingIterator begin(text.data(), &position), end(text.data() + text.size(), &position);
  Json::sax_parse(begin, end, &builder);
  return builder.take_root();
}

}  // namespace plait::detail
