// YAML through yaml-cpp's event parser. yaml-cpp 0.7's own nodes drop `<<:` and keep duplicate keys, so the tree is built here.
#include <map>
#include <set>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "plait/base/error.h"
#include "plait/config/setting_tree.h"

namespace plait::detail {

namespace {

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& origin_name) : origin_name_(origin_name) {}

  SettingNode take_root() {
    for (auto& entry : root_.entries) {
      auto it = top_level_anchor_.find(entry.key);
      entry.value.reused = it != top_level_anchor_.end() && used_anchors_.count(it->second) > 0;
    }
    return std::move(root_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++num_documents_ > 1) fail(mark, "a second document (---); a settings file holds one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, make(mark, SettingNode::Kind::kNull), anchor); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto it = anchors_.find(anchor);
    if (it == anchors_.end()) fail(mark, "an alias inside the value it stands for");
    used_anchors_.insert(anchor);
    count_nodes(mark, it->second.second);
    add(mark, it->second.first, YAML::NullAnchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    check_tag(mark, tag);
    SettingNode node = make(mark, SettingNode::Kind::kScalar);
    node.text = value;
    node.quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    add(mark, std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, SettingNode::Kind::kSequence);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, SettingNode::Kind::kMap);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override {
    apply_merges();
    close();
  }

 private:
  struct Open {
    SettingNode node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    YAML::Mark mark;
    size_t nodes_before = 0;
    bool has_key = false;
    SettingNode key;
    std::map<std::string, std::string> seen;  // key -> origin
    std::vector<SettingNode> merges;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw_error(ExitCode::kUsage, origin_name_, ":", mark.line + 1, ": ", what);
  }

  SettingNode make(const YAML::Mark& mark, SettingNode::Kind kind) const {
    SettingNode node;
    node.kind = kind;
    node.origin = cat(origin_name_, ":", mark.line + 1);
    return node;
  }

  void count_nodes(const YAML::Mark& mark, size_t more) {
    num_nodes_ += more;  // aliases count as what they stand for: a file of aliases of aliases cannot grow without bound
    if (num_nodes_ > kMaxSettingNodes) fail(mark, cat("more than ", kMaxSettingNodes, " values"));
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    static const std::set<std::string> known = {"",
                                                "?",
                                                "!",
                                                "tag:yaml.org,2002:str",
                                                "tag:yaml.org,2002:int",
                                                "tag:yaml.org,2002:float",
                                                "tag:yaml.org,2002:bool",
                                                "tag:yaml.org,2002:null",
                                                "tag:yaml.org,2002:map",
                                                "tag:yaml.org,2002:seq"};
    if (!known.count(tag)) fail(mark, cat("tag ", tag, " is not supported in settings"));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, SettingNode::Kind kind) {
    check_tag(mark, tag);
    if (stack_.size() >= kMaxSettingDepth) fail(mark, cat("nested deeper than ", kMaxSettingDepth, " levels"));
    Open next;
    next.node = make(mark, kind);
    next.anchor = anchor;
    next.mark = mark;
    next.nodes_before = num_nodes_;
    stack_.push_back(std::move(next));
  }

  void close() {
    Open done = std::move(stack_.back());
    stack_.pop_back();
    size_t nodes = num_nodes_ - done.nodes_before + 1;
    add(done.mark, std::move(done.node), done.anchor, nodes);
  }

  void add(const YAML::Mark& mark, SettingNode node, YAML::anchor_t anchor, size_t nodes = 1) {
    count_nodes(mark, 1);
    if (anchor != YAML::NullAnchor) anchors_[anchor] = {node, nodes};
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& top = stack_.back();
    if (top.node.kind == SettingNode::Kind::kSequence) {
      top.node.items.push_back(std::move(node));
    } else if (!top.has_key) {
      take_key(mark, top, std::move(node));
    } else {
      take_value(mark, top, std::move(node), anchor);
    }
  }

  void take_key(const YAML::Mark& mark, Open& top, SettingNode key) {
    if (key.is_null()) {
      key.kind = SettingNode::Kind::kScalar;
      key.text = "null";
    }
    if (key.kind != SettingNode::Kind::kScalar) fail(mark, cat("a key must be a word, not ", key.summary()));
    auto [it, is_new] = top.seen.emplace(key.text, cat(origin_name_, ":", mark.line + 1));
    if (!is_new) fail(mark, cat("duplicate key ", key.text, " (first at ", it->second, ")"));
    key.origin = it->second;
    top.key = std::move(key);
    top.has_key = true;
  }

  void take_value(const YAML::Mark& mark, Open& top, SettingNode node, YAML::anchor_t anchor) {
    top.has_key = false;
    if (top.key.text == "<<" && !top.key.quoted) {
      std::vector<SettingNode> sources;
      if (node.kind == SettingNode::Kind::kSequence) sources = std::move(node.items);
      else sources.push_back(std::move(node));
      for (auto& source : sources) {
        if (!source.is_map()) fail(mark, cat("<<: merges maps, not ", source.summary()));
        top.merges.push_back(std::move(source));
      }
      return;
    }
    if (stack_.size() == 1 && anchor != YAML::NullAnchor) top_level_anchor_[top.key.text] = anchor;
    top.node.entries.push_back({top.key.text, top.key.origin, std::move(node)});
  }

  // Keys of the map itself win, then those of the earlier merge source.
  void apply_merges() {
    Open& top = stack_.back();
    for (auto& source : top.merges)
      for (auto& entry : source.entries)
        if (top.seen.emplace(entry.key, entry.origin).second) top.node.entries.push_back(std::move(entry));
  }

  const std::string& origin_name_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, std::pair<SettingNode, size_t>> anchors_;  // value, nodes in it
  std::set<YAML::anchor_t> used_anchors_;
  std::map<std::string, YAML::anchor_t> top_level_anchor_;
  SettingNode root_;
  size_t num_nodes_ = 0;
  int num_documents_ = 0;
};

}  // namespace

SettingNode parse_yaml_settings(const std::string& text, const std::string& origin_name) {
  std::istringstream stream(text);
  TreeBuilder builder(origin_name);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {}
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) throw_error(ExitCode::kUsage, origin_name, ": ", error.msg);
    throw_error(ExitCode::kUsage, origin_name, ":", error.mark.line + 1, ": not YAML: ", error.msg, " (column ", error.mark.column + 1,
                ")");
  }
  return builder.take_root();
}

}  // namespace plait::detail
