#include "plait/config/given_settings.h"

#include <algorithm>
#include <set>

#include "plait/base/error.h"
#include "plait/config/describe.h"
#include "plait/config/hugging_face.h"
#include "plait/config/modelscope.h"
#include "plait/config/scalar.h"

namespace plait {

namespace {
constexpr const char* kOptimizer = "train.optimizer";
constexpr const char* kOptimizerInDistributed = "train.distributed.optimizer";

std::string parent_of(const std::string& dotted) {
  auto at = dotted.rfind('.');
  return at == std::string::npos ? "" : dotted.substr(0, at);
}
std::string last_of(const std::string& dotted) {
  auto at = dotted.rfind('.');
  return at == std::string::npos ? dotted : dotted.substr(at + 1);
}
bool ends_with(const std::string& text, const std::string& tail) {
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

// Short flags whose setting has another last name.
const std::map<std::string, std::string>& short_flags() {
  static const std::map<std::string, std::string> flags = {
      {"model", "model.path"},
      {"model_name_or_path", "model.path"},
      {"train_file", "dataset.train.file"},
      {"valid_file", "dataset.valid.file"},
      {"validation_file", "dataset.valid.file"},
      {"tp_size", "train.distributed.model_parallel_size"},
      {"dp_size", "train.distributed.data_parallel_size"},
      {"pp_size", "train.distributed.pipeline_parallel_size"},
  };
  return flags;
}

void check_one_optimizer(const SettingNode& tree) {
  const SettingNode* train = tree.find("train");
  const SettingNode* distributed = train ? train->find("distributed") : nullptr;
  const SettingNode* outer = train ? train->find("optimizer") : nullptr;
  const SettingNode* inner = distributed ? distributed->find("optimizer") : nullptr;
  if (outer && inner)
    throw_error(ExitCode::kUsage, "optimizer is given twice: train.optimizer (", outer->origin, ") and train.distributed.optimizer (",
                inner->origin, "); keep one");
}

[[noreturn]] void unknown_key(const std::string& path, const SettingEntry& entry, const SettingNames& names) {
  std::string near = names.nearest_dotted(path);
  std::string hint = near.empty() ? cat("known here: ", names.members(parent_of(path))) : cat("nearest known key: ", near);
  throw_error(ExitCode::kUsage, entry.origin, ": unknown key ", path, "; ", hint);
}
}  // namespace

bool is_pending_name(const std::string& name) {
  for (const char* prefix : {"modelscope.", "hugging_face.", "deepspeed."})
    if (name.rfind(prefix, 0) == 0) return true;
  return false;
}

void record_setting(const std::string& canonical, GivenSetting given, GivenSettings* out) {
  const SettingNode& value = given.value;
  if (canonical == "train.distributed.model_parallel_size" && value.is_map())
    throw_error(ExitCode::kUsage, quote(given.written, given),
                ": a size for each sub-model comes with the multimodal trainer and is not available yet; "
                "give one number");
  if (canonical == "train.optimizer.params.betas" && !value.is_null()) {
    if (value.kind != SettingNode::Kind::kSequence || value.items.size() != 2)
      throw_error(ExitCode::kUsage, quote(given.written, given), " must be two numbers: [0.9, 0.999]");
    for (int i = 0; i < 2; ++i) {
      GivenSetting beta = given;
      beta.value = value.items[static_cast<size_t>(i)];
      out->add(i == 0 ? "train.optimizer.params.beta1" : "train.optimizer.params.beta2", beta);
    }
    return;
  }
  if (canonical == "evaluation.period.by_epoch" && !value.is_null()) {
    auto by_epoch = value.kind == SettingNode::Kind::kScalar ? parse_bool_text(value.text) : std::nullopt;
    if (!by_epoch) throw_error(ExitCode::kUsage, quote(given.written, given), " is not true or false");
    given.value.text = *by_epoch ? "epoch" : "steps";
    out->add("evaluation.period.eval_strategy", std::move(given));
    return;
  }
  out->add(canonical, std::move(given));
}

void GivenSettings::add(const std::string& name, GivenSetting given) {
  auto it = by_name_.find(name);
  if (it != by_name_.end()) {
    const GivenSetting& first = it->second;
    if (given.value.is_null()) return;  // "not given" contradicts nothing
    if (first.value.is_null()) {
      it->second = std::move(given);
      return;
    }
    // Names with another one's prefix are ours alone.
    throw_error(ExitCode::kUsage, is_pending_name(name) ? last_of(name) : name, " is given twice: as ", first.written, " (", first.origin,
                ") and ", given.written, " (", given.origin, ")");
  }
  by_name_.emplace(name, std::move(given));
}

void GivenSettings::overlay(const GivenSettings& above) {
  for (const auto& [name, given] : above.by_name_) by_name_[name] = given;
}

const GivenSetting* GivenSettings::find(const std::string& name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() || it->second.value.is_null() ? nullptr : &it->second;
}

std::string quote(const std::string& name, const GivenSetting& given) {
  return cat(name, " ", given.value.summary(), " (", given.origin, ")");
}

const std::vector<Shorthand>& shorthands() {
  static const std::vector<Shorthand> list = {
      {"train.optimizer.params.betas", "[beta1, beta2]"},
      {"train.fp16", "true: train.dtype float16"},
      {"train.bf16", "true: train.dtype bfloat16"},
      {"train.distributed.distributed_strategy",
       "data_parallel, tensor_parallel or pipeline_parallel: the other two sizes are 1; hybrid_parallel: any sizes; auto_parallel is not "
       "available yet"},
      {"evaluation.period.by_epoch", "true: eval_strategy epoch; false: eval_strategy steps"},
  };
  return list;
}

SettingNames::SettingNames() {
  std::set<std::string> sections;
  auto know = [&](const std::string& name, const std::string& canonical) {
    canonical_[name] = canonical;
    for (std::string up = parent_of(name); !up.empty(); up = parent_of(up)) sections.insert(up);
  };
  Config defaults;
  describe(
      [&](const SettingInfo& info, const auto&) {
        leaves_.push_back(info.name);
        know(info.name, info.name);
        for (const auto& alias : info.aliases) know(alias, info.name);
      },
      defaults);
  for (const auto& shorthand : shorthands()) {
    leaves_.push_back(shorthand.name);
    know(shorthand.name, shorthand.name);
  }
  canonical_["train.optimizer.betas"] = "train.optimizer.params.betas";
  // `optimizer` may stand under train.distributed as well.
  std::map<std::string, std::string> moved;
  for (const auto& [name, canonical] : canonical_)
    if (name.rfind(cat(kOptimizer, "."), 0) == 0) moved[kOptimizerInDistributed + name.substr(std::string(kOptimizer).size())] = canonical;
  for (const auto& [name, canonical] : moved) know(name, canonical);
  sections_.assign(sections.begin(), sections.end());
}

bool SettingNames::is_section(const std::string& dotted) const { return std::binary_search(sections_.begin(), sections_.end(), dotted); }

std::string SettingNames::canonical(const std::string& dotted) const {
  auto it = canonical_.find(dotted);
  return it == canonical_.end() ? "" : it->second;
}

std::string SettingNames::canonical_of_flag(const std::string& flag) const {
  if (auto it = short_flags().find(flag); it != short_flags().end()) return it->second;
  if (std::string exact = canonical(flag); !exact.empty()) return exact;
  if (is_section(flag)) return flag;
  for (const auto& known : hugging_face_names())
    if (known.name == flag) return known.canonical;
  std::set<std::string> found;
  for (const auto& [name, canonical] : canonical_)
    if (ends_with(name, "." + flag)) found.insert(canonical);
  if (found.size() > 1) throw_error(ExitCode::kUsage, "--", flag, " could be ", join(found), "; write the whole name");
  return found.empty() ? "" : *found.begin();
}

std::vector<std::string> SettingNames::top_level() const {
  std::vector<std::string> out;
  for (const auto& section : sections_)
    if (section.find('.') == std::string::npos) out.push_back(section);
  for (const auto& leaf : leaves_)
    if (leaf.find('.') == std::string::npos) out.push_back(leaf);
  return out;
}

std::string SettingNames::nearest_dotted(const std::string& dotted) const {
  std::string parent = parent_of(dotted), word = last_of(dotted);
  for (const auto& known : hugging_face_names())
    if (known.name == word && !canonical(known.canonical).empty()) return known.canonical;
  std::vector<std::string> siblings, words, names;
  for (const auto& section : sections_)
    if (parent_of(section) == parent) siblings.push_back(last_of(section));
  for (const auto& [name, canonical] : canonical_) {
    if (parent_of(name) == parent) siblings.push_back(last_of(name));
    words.push_back(last_of(name));
    names.push_back(canonical);
  }
  if (std::string near = nearest(word, siblings); !near.empty()) return parent.empty() ? near : cat(parent, ".", near);
  std::string near = nearest(word, words);
  if (near.empty()) return "";
  return names[static_cast<size_t>(std::find(words.begin(), words.end(), near) - words.begin())];
}

std::string SettingNames::nearest_flag(const std::string& flag) const {
  std::vector<std::string> words;
  for (const auto& [name, canonical] : short_flags()) words.push_back(name);
  for (const auto& known : hugging_face_names()) words.push_back(known.name);
  for (const auto& known : modelscope_names()) words.push_back(known.name);
  for (const auto& [name, canonical] : canonical_) words.push_back(last_of(name));
  for (const auto& [name, canonical] : canonical_) words.push_back(name);
  return nearest(flag, words);
}

std::string SettingNames::members(const std::string& section) const {
  std::vector<std::string> out;
  for (const auto& leaf : leaves_) {
    std::string inside = section.empty() ? leaf : leaf.rfind(section + ".", 0) == 0 ? leaf.substr(section.size() + 1) : "";
    std::string first = inside.substr(0, inside.find('.'));
    if (!first.empty() && std::find(out.begin(), out.end(), first) == out.end()) out.push_back(first);
  }
  return join(out);
}

void collect_native(const SettingNode& tree, const std::string& prefix, const SettingNames& names, bool command_line, GivenSettings* out) {
  if (prefix.empty()) check_one_optimizer(tree);
  for (const auto& entry : tree.entries) {
    std::string path = prefix.empty() ? entry.key : cat(prefix, ".", entry.key);
    std::string canonical = names.canonical(path);
    if (!canonical.empty()) {
      record_setting(canonical, {entry.value, path, entry.origin, command_line}, out);
    } else if (names.is_section(path)) {
      if (entry.value.is_map()) collect_native(entry.value, path, names, command_line, out);
      else if (!entry.value.is_null())
        throw_error(ExitCode::kUsage, entry.origin, ": ", path, " is a section, not a value: ", path, ": {", names.members(path),
                    "}; it says ", entry.value.summary());
    } else if (prefix.empty() && entry.value.reused && nearest(path, names.top_level()).empty()) {
      continue;  // only holds an anchor that is used elsewhere; no slip of the pen for a known section
    } else if (!detail::collect_message_call(path, entry.value, entry.origin, command_line, out)) {
      unknown_key(path, entry, names);
    }
  }
}

void collect_flag(const std::string& flag, const SettingNode& value, const std::string& origin, const SettingNames& names,
                  bool command_line, GivenSettings* out) {
  std::string name = flag;
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "local_rank") return;  // the torch launcher inserts it; the environment says the same
  GivenSetting given{value, name, origin, command_line};
  for (const auto& unavailable : unavailable_names()) {
    if (unavailable.name != name) continue;
    std::string text = value.kind == SettingNode::Kind::kScalar ? value.text : value.summary();
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (value.is_null() || std::find(unavailable.off.begin(), unavailable.off.end(), text) != unavailable.off.end()) return;
    std::vector<std::string> off = unavailable.off;
    std::erase(off, "");
    throw_error(ExitCode::kUsage, quote(name, given), ": ", unavailable.why,
                off.empty() ? "; leave it out" : cat("; accepted: ", join(off, " | ")));
  }
  if (const ModelScopeName* known = find_modelscope_name(name); known && !value.is_map())
    return collect_modelscope_name(*known, std::move(given), out);
  if (detail::collect_message_call(name, value, origin, command_line, out)) return;
  if (value.is_map() && names.is_section(name)) return collect_native(value, name, names, command_line, out);
  std::string canonical = names.canonical_of_flag(name);
  if (canonical.empty()) {
    std::string near = names.nearest_flag(name), hint = "; docs/settings.md lists all names";
    auto dot = name.rfind('.');
    if (!near.empty()) hint = cat("; nearest known name: ", near);
    else if (dot != std::string::npos && names.is_section(name.substr(0, dot)))
      hint = cat("; ", name.substr(0, dot), " has ", names.members(name.substr(0, dot)));
    throw_error(ExitCode::kUsage, "unknown ", command_line ? cat("flag --", name) : cat("key ", name, " (", origin, ")"), hint);
  }
  if (names.is_section(canonical) && !value.is_null())
    throw_error(ExitCode::kUsage, name, " (", origin, ") is a section: give {", names.members(canonical), "} or one dotted name");
  for (const auto& known : hugging_face_names())
    if (known.name == name && known.canonical == canonical) canonical = translate_hugging_face(known, &given);
  record_setting(canonical, std::move(given), out);
}

}  // namespace plait
