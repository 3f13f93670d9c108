#include "plait/config/explain.h"

#include <algorithm>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/config/describe.h"
#include "plait/config/layers.h"
#include "plait/config/setting_text.h"
#include "plait/config/settings_trace.h"

namespace plait {

namespace {

// Native name -> value as text.
class Values {
 public:
  template <class Field>
  void operator()(const SettingInfo& info, const Field& field) {
    by_name[info.name] = setting_text(info, field);
    order.push_back(info.name);
  }
  std::map<std::string, std::string> by_name;
  std::vector<std::string> order;
};

Values values_of(const Config& config) {
  Values values;
  describe(values, config);
  return values;
}

std::string form_name(SettingsForm form, bool has_file) {
  std::string name = form == SettingsForm::kHuggingFace  ? "Hugging Face TrainingArguments"
                     : form == SettingsForm::kModelScope ? "ModelScope settings"
                     : form == SettingsForm::kDeepSpeed  ? "a DeepSpeed configuration"
                                                         : "native settings";
  return has_file ? name : "no file; flags read as " + name;
}

class Explainer {
 public:
  Explainer(const SettingsTrace& trace, const std::string& error) : trace_(trace), error_(error) {
    // What the merged settings say counts; before they exist, what was read so far.
    const GivenSettings& settled = trace.merged.all().empty() ? trace.file : trace.merged;
    for (const auto& [name, given] : settled.all())
      if (!given.command_line && !given.value.is_null()) became_[given.written].push_back({name, &given});
    for (const auto& [name, given] : trace.file.all()) read_[given.written].push_back(name);
    values_ = values_of(trace.config ? *trace.config : trace.defaults).by_name;
    resolved_ = trace.config.has_value();
    // Shorthands stay in the list beside the setting they became.
    for (auto& [written, list] : became_) {
      if (list.size() > 1) std::erase_if(list, [&](const auto& one) { return !values_.count(one.first); });
      if (std::erase_if(list, [](const auto& one) { return is_pending_name(one.first); }) > 0) pending_.insert(written);
    }
    std::erase_if(became_, [](const auto& one) { return one.second.empty(); });
  }

  std::vector<ExplainedLine> lines() {
    for (const auto& entry : trace_.tree.entries) {
      in_anchor_ = entry.value.reused;
      walk(entry.value, entry.key, entry.key, entry.origin);
    }
    return std::move(lines_);
  }

  // Settings that no line of the file wrote: defaults of the form, settings of a file it names.
  std::vector<std::string> others() const {
    std::vector<std::string> out;
    for (const auto& [written, list] : became_)
      if (!seen_.count(written))
        for (const auto& [name, given] : list) out.push_back(cat(name, " = ", value_text(name, *given), " (", given->origin, ")"));
    return out;
  }

  std::string value_text(const std::string& name, const GivenSetting& given) const {
    auto it = values_.find(name);
    return it != values_.end() && resolved_ ? it->second : given.value.summary();
  }

 private:
  // `name` is how the translators call the place; list elements with a type are PATH.TYPE as well as PATH[i].
  void walk(const SettingNode& node, const std::string& path, const std::string& name, const std::string& origin) {
    bool has_sections = node.is_map() && !node.entries.empty();
    for (const auto& item : node.items) has_sections |= item.is_map();
    if (!has_sections) return add(node, path, name, origin);
    if (became_.count(name) && seen_.insert(name).second) add(node, path, name, origin);
    for (const auto& entry : node.entries) walk(entry.value, cat(path, ".", entry.key), cat(name, ".", entry.key), entry.origin);
    for (size_t i = 0; i < node.items.size(); ++i) {
      const SettingNode& item = node.items[i];
      const SettingNode* type = item.find("type");
      std::string element = cat(path, "[", i, "]");
      walk(item, element, type && type->kind == SettingNode::Kind::kScalar ? cat(path, ".", type->text) : element, item.origin);
    }
  }

  void add(const SettingNode& node, const std::string& path, const std::string& name, const std::string& origin) {
    ExplainedLine line{origin, path, node.summary(), "", ""};
    for (const auto& place : places_of(node, path)) seen_.insert(place);
    seen_.insert(name);
    decide(node, {path, name}, &line);
    if (!error_.empty() && !failed_ && is_culprit(line)) fail(&line);
    lines_.push_back(std::move(line));
  }

  // The node, and items of a list that became settings of their own: [fp8, 65536].
  static std::vector<std::string> places_of(const SettingNode& node, const std::string& name) {
    std::vector<std::string> places = {name};
    for (size_t i = 0; i < node.items.size(); ++i) places.push_back(cat(name, "[", i, "]"));
    return places;
  }

  void fail(ExplainedLine* line) {
    failed_ = true;
    line->fate = "error";
    line->outcome = error_;
  }

  // The message names the place and the key.
  bool is_culprit(const ExplainedLine& line) const {
    auto last = line.key.rfind('.');
    std::string word = last == std::string::npos ? line.key : line.key.substr(last + 1);
    bool placed = error_.find("(" + line.place + ")") != std::string::npos || error_.rfind(line.place + ":", 0) == 0;
    bool named = error_.find(word) != std::string::npos;
    if (word == "type") named = error_.find(line.value) != std::string::npos;
    if (auto it = became_.find(line.key); it != became_.end())
      for (const auto& [canonical, given] : it->second) named |= error_.find(canonical) != std::string::npos;
    return placed && named;
  }

  void decide(const SettingNode& node, const std::vector<std::string>& names, ExplainedLine* line) const {
    auto settle = [&](const std::string& fate, const std::string& outcome) {
      line->fate = fate;
      line->outcome = outcome;
    };
    std::vector<std::string> settings;
    for (size_t i = 0; i < names.size() && settings.empty(); ++i)
      for (const auto& place : places_of(node, names[i]))
        if (auto it = became_.find(place); it != became_.end())
          for (const auto& [name, given] : it->second) settings.push_back(cat(name, " = ", value_text(name, *given)));
    if (!settings.empty()) return settle("setting", join(settings));
    if (node.is_null()) return settle("ignored", "null: not given");
    for (const auto& name : names)
      for (const auto& canonical : read_names(name))
        for (const auto& by : {canonical, alternative_of(canonical)})
          if (const GivenSetting* now = trace_.merged.find(by); now && now->command_line)
            return settle("replaced", cat("the command line says ", by, " = ", value_text(by, *now)));
    for (const auto& name : names)
      if (!error_.empty() && pending_.count(name)) return settle("unread", "not settled: the error came first");
    for (const auto& name : names) {
      if (auto note = note_of(trace_.notes.ignored, name); !note.empty()) return settle("ignored", note);
      if (auto note = note_of(trace_.notes.derived, name); !note.empty()) return settle("derived", note);
    }
    for (const auto& notice : trace_.notices)
      for (const auto& name : names)
        if (notice.rfind(name + " ", 0) == 0 && notice.find(cat("(", line->place, ")")) != std::string::npos)
          return settle("ignored", notice);
    if (in_anchor_) return settle("ignored", "it holds an anchor that is used elsewhere");
    if (!error_.empty()) return settle("unread", "not settled: the error came first");
    settle("ignored", "it asks for what plait does anyway");
  }

  std::vector<std::string> read_names(const std::string& name) const {
    auto it = read_.find(name);
    return it == read_.end() ? std::vector<std::string>() : it->second;
  }

  // The note of the key or of the nearest section around it.
  static std::string note_of(const std::map<std::string, std::string>& notes, std::string name) {
    while (true) {
      if (auto it = notes.find(name); it != notes.end()) return it->second;
      auto cut = name.find_last_of(".[");
      if (cut == std::string::npos) return "";
      name.resize(cut);
    }
  }

  const SettingsTrace& trace_;
  const std::string& error_;
  std::map<std::string, std::vector<std::pair<std::string, const GivenSetting*>>> became_;
  std::map<std::string, std::vector<std::string>> read_;
  std::map<std::string, std::string> values_;
  std::set<std::string> seen_, pending_;
  std::vector<ExplainedLine> lines_;
  bool resolved_ = false, failed_ = false, in_anchor_ = false;
};

void add_defaults(const SettingsTrace& trace, std::vector<std::string>* out) {
  Values native = values_of(Config()), own = values_of(trace.defaults);
  for (const auto& name : native.order)
    if (native.by_name[name] != own.by_name[name] && !trace.merged.has(name))
      out->push_back(cat(name, " = ", own.by_name[name], " (native default: ", native.by_name[name], ")"));
}

void add_layout(const Config& config, std::vector<std::string>* out) {
  const auto& t = config.train;
  const auto& d = t.distributed;
  out->push_back(cat("ranks: ", d.data_parallel_size * d.model_parallel_size * d.pipeline_parallel_size, " = data_parallel_size ",
                     d.data_parallel_size, " x model_parallel_size ", d.model_parallel_size, " x pipeline_parallel_size ",
                     d.pipeline_parallel_size));
  out->push_back(cat("batch: ", t.batch_size, " = per_device_train_batch_size ", t.per_device_train_batch_size, " x data_parallel_size ",
                     d.data_parallel_size, " x gradient_accumulation_steps ", d.gradient_accumulation_steps));
}

void add_list(const char* title, const std::vector<std::string>& items, std::string* out) {
  if (items.empty()) return;
  *out += cat(title, "\n");
  for (const auto& item : items) *out += cat("  ", item, "\n");
}

}  // namespace

Explanation explain_settings(const CommandLine& command_line, int64_t world_size) {
  SettingsTrace trace;
  Explanation out;
  try {
    load_config(command_line, world_size, nullptr, &trace);
  } catch (const Error& error) {
    out.error = error.what();
    out.exit_code = static_cast<int>(error.code());
  }
  out.source = trace.source;
  if (trace.form_known) out.form = form_name(trace.form, !trace.source.empty());
  Explainer explainer(trace, out.error);
  out.lines = explainer.lines();
  for (const auto& [name, given] : trace.merged.all())
    if (given.command_line && !given.value.is_null())
      out.command_line.push_back(cat("--", given.written, " -> ", name, " = ", explainer.value_text(name, given)));
  out.defaults = explainer.others();
  if (!trace.merged.all().empty() || trace.config) add_defaults(trace, &out.defaults);
  if (trace.config) add_layout(*trace.config, &out.layout);
  for (const auto& notice : trace.notices)
    if (notice.find("plait explain") == std::string::npos) out.notices.push_back(notice);
  return out;
}

std::string explanation_text(const Explanation& explanation) {
  std::string out = cat(explanation.source.empty() ? "" : explanation.source + ": ",
                        explanation.form.empty() ? "not read" : "read as " + explanation.form, "\n");
  constexpr size_t kWidest = 72;
  size_t width = 0;
  std::vector<std::string> left;
  for (const auto& line : explanation.lines) {
    auto folder = line.place.rfind('/');
    left.push_back(cat(folder == std::string::npos ? line.place : line.place.substr(folder + 1), "  ", line.key, ": ", line.value));
    if (left.back().size() <= kWidest) width = std::max(width, left.back().size());
  }
  for (size_t i = 0; i < left.size(); ++i) {
    const ExplainedLine& line = explanation.lines[i];
    if (left[i].size() < width) left[i].resize(width, ' ');
    out += cat("  ", left[i], "  -> ", line.fate == "setting" ? "" : cat(line.fate, ": "), line.outcome, "\n");
  }
  add_list("command line", explanation.command_line, &out);
  add_list("not written, but settled by the form", explanation.defaults, &out);
  add_list("resolved", explanation.layout, &out);
  add_list("notices", explanation.notices, &out);
  return out;
}

std::string explanation_json(const Explanation& explanation) {
  nlohmann::ordered_json root;
  root["source"] = explanation.source;
  root["form"] = explanation.form;
  root["lines"] = nlohmann::ordered_json::array();
  for (const auto& line : explanation.lines)
    root["lines"].push_back(
        {{"place", line.place}, {"key", line.key}, {"value", line.value}, {"fate", line.fate}, {"outcome", line.outcome}});
  root["command_line"] = explanation.command_line;
  root["defaults"] = explanation.defaults;
  root["resolved"] = explanation.layout;
  root["notices"] = explanation.notices;
  root["error"] = explanation.error;
  root["exit_code"] = explanation.exit_code;
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace plait
