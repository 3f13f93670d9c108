// What of ModelScope's settings can be decided only when file and flags are merged.
#include <algorithm>
#include <filesystem>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/config/modelscope.h"
#include "plait/config/scalar.h"
#include "plait/config/setting_info.h"

namespace plait {

namespace {

using detail::put_setting;
using detail::take_pending;

std::string word_of(const GivenSetting& given) {
  if (given.value.kind != SettingNode::Kind::kScalar) throw_error(ExitCode::kUsage, quote(given.written, given), " must be one value");
  return given.value.text;
}

std::string text_or(const GivenSettings& given, const std::string& name, const std::string& otherwise) {
  const GivenSetting* found = given.find(name);
  return found && found->value.kind == SettingNode::Kind::kScalar ? found->value.text : otherwise;
}

// OWNER/NAME that is no folder here is a model of the hub.
void finish_model(GivenSettings* given, bool is_form, const std::string& source) {
  const GivenSetting* model = given->find("model.path");
  if (model && is_form && model->command_line) {
    std::string path = word_of(*model);
    bool hub_name = std::count(path.begin(), path.end(), '/') == 1 && path.front() != '/' && path.front() != '.' && path.back() != '/';
    std::error_code problem;
    if (hub_name && !std::filesystem::is_directory(path, problem))
      throw_error(
          ExitCode::kCheckpoint, quote(model->written, *model),
          " is not a folder here, and plait fetches nothing from a hub: download it and give the folder, --model DIR with config.json, "
          "model.safetensors and tokenizer.json (docs/modelscope.md)");
  }
  if (model || !is_form || source.empty()) return;
  std::error_code problem;
  if (std::filesystem::exists(std::filesystem::path(source).parent_path() / "config.json", problem))
    given->add("model.path", {scalar_node(".", source), "model.path", "the folder of " + source, false});
}

void finish_data(GivenSettings* given, TranslationNotes* notes) {
  for (const std::string use : {"train", "valid"}) {
    auto hub = take_pending(given, "modelscope.hub_data." + use);
    if (!hub) continue;
    if (given->has("dataset." + use + ".file")) {
      notes->ignored[hub->written] = "the command line gives a file";
      continue;
    }
    std::string flag = use == "train" ? "--train_file" : "--valid_file";
    throw_error(ExitCode::kUsage, quote(hub->written, *hub), " is no data file: data sets on a hub are not fetched. Give ", flag,
                " FILE (.jsonl, .tsv, .csv or .txt)", use == "valid" ? ", or leave it out to train without evaluation" : "");
  }
  if (auto target = take_pending(given, "modelscope.tgt_txt"))
    throw_error(
        ExitCode::kUsage, quote(target->written, *target),
        ": rows of prompt and target are not available yet. Join them in one column, or give rows with input_ids and labels (-100 where "
        "the prompt is; docs/data.md)");
}

std::string metric_word(const GivenSetting& given) {
  std::string word = word_of(given);
  if (word == "binary-f1" || word == "macro-f1") word = "f1";
  auto known = parse_enum_word<Metric>(word);
  if (!known) throw_error(ExitCode::kUsage, quote(given.written, given), " is not ", rule_of_words(word, enum_choices<Metric>(), "loss"));
  return enum_word(*known);
}

void check_rule(const std::optional<GivenSetting>& rule, const std::string& metric) {
  if (!rule) return;
  std::string right = metric == "accuracy" || metric == "f1" ? "max" : "min";
  if (word_of(*rule) != right)
    throw_error(ExitCode::kUsage, quote(rule->written, *rule), " contradicts ", metric, ", which is better when ",
                right == "max" ? "greater" : "smaller", "; nearest valid value ", right);
}

std::vector<std::string> metrics_in_effect(const GivenSettings& given) {
  std::vector<std::string> metrics = {"accuracy", "f1", "loss"};
  if (text_or(given, "task", "") == enum_word(Task::kTextGeneration)) metrics = {"loss", "perplexity"};
  const GivenSetting* listed = given.find("evaluation.metrics");
  if (!listed) return metrics;
  metrics.clear();
  if (listed->value.kind == SettingNode::Kind::kScalar) metrics.push_back(listed->value.text);
  for (const auto& item : listed->value.items) metrics.push_back(item.text);
  if (metrics.empty()) metrics.push_back("loss");
  return metrics;
}

// The best weights and early stop follow the first metric.
void finish_metric_rules(GivenSettings* given, TranslationNotes* notes) {
  auto best = take_pending(given, "modelscope.best_metric"), best_rule = take_pending(given, "modelscope.best_rule");
  auto stop = take_pending(given, "modelscope.stop_metric"), stop_rule = take_pending(given, "modelscope.stop_rule");
  std::vector<std::string> metrics = metrics_in_effect(*given);
  const auto& chosen = best ? best : stop;
  if (chosen) {
    std::string word = metric_word(*chosen);
    if (metrics.front() != word) {
      metrics.erase(std::remove(metrics.begin(), metrics.end(), word), metrics.end());
      metrics.insert(metrics.begin(), word);
      GivenSetting from = *chosen;
      from.value = SettingNode{};
      from.value.kind = SettingNode::Kind::kSequence;
      for (const auto& metric : metrics) from.value.items.push_back(scalar_node(metric, from.origin));
      given->erase("evaluation.metrics");
      given->add("evaluation.metrics", std::move(from));
    }
  }
  check_rule(best_rule, metrics.front());
  if (stop && metric_word(*stop) != metrics.front())
    throw_error(ExitCode::kUsage, quote(stop->written, *stop), ": training stops by the first metric, ", metrics.front(),
                ", which picks the best weights too; nearest valid value ", metrics.front());
  check_rule(stop_rule, metrics.front());
  for (const auto* key : {&best, &stop})
    if (*key) notes->derived[(*key)->written] = "the first of evaluation.metrics: " + metrics.front();
  for (const auto* rule : {&best_rule, &stop_rule})
    if (*rule) notes->derived[(*rule)->written] = "agrees with the metric, " + metrics.front();
}

void finish_outputs(GivenSettings* given, bool is_form, TranslationNotes* notes) {
  if (auto saving = take_pending(given, "modelscope.save_strategy"); saving && !given->has("train.save.strategy"))
    given->add("train.save.strategy", *saving);
  std::string strategy = text_or(*given, "train.save.strategy", "epoch");
  if (parse_enum_word<SaveStrategy>(strategy) == SaveStrategy::kNo)
    for (const char* name : {"train.save.interval", "train.save.keep"})
      if (const GivenSetting* found = given->find(name); found && is_form) {
        notes->ignored[found->written] = "save_strategy is no";
        given->erase(name);
      }
  if (auto board = take_pending(given, "modelscope.tensorboard_dir")) {
    const GivenSetting* work_dir = given->find("train.work_dir");
    GivenSetting from = *board;
    if (work_dir) from.command_line = work_dir->command_line;  // paths of flags and files have different roots
    std::string folder = text_or(*given, "train.work_dir", is_form ? "train_target" : "runs/plait");
    if (!given->has("train.tensorboard.dir")) put_setting(given, "train.tensorboard.dir", from, folder + "/" + word_of(*board));
  }
  auto seed = take_pending(given, "modelscope.seed");
  if (seed && !given->has("train.seed")) given->add("train.seed", *seed);
}

}  // namespace

void adopt_shared_names(GivenSettings* given) {
  if (const GivenSetting* task = given->find("task"); task && task->value.kind == SettingNode::Kind::kScalar) {
    std::string word = detail::native_task(task->value.text);
    if (!word.empty()) put_setting(given, "task", *task, word);
  }
  const std::vector<std::pair<std::string, std::string>> shared = {{"hugging_face.save_strategy", "train.save.strategy"},
                                                                   {"hugging_face.save_total_limit", "train.save.keep"}};
  for (const auto& [name, setting] : shared)
    if (auto found = take_pending(given, name)) {
      const GivenSetting* there = given->find(setting);
      if (there && there->command_line == found->command_line) given->add(setting, *found);  // throws: given twice
      if (!there || found->command_line) put_setting(given, setting, *found, word_of(*found));
    }
}

int64_t take_modelscope_world(GivenSettings* given, int64_t launched) {
  auto world = take_pending(given, "modelscope.world_size");
  if (!world) return 0;
  auto size = parse_integer_text(word_of(*world));
  if (!size || *size < 1) throw_error(ExitCode::kUsage, quote(world->written, *world), " is not a whole number above 0");
  if (launched > 0 && *size != launched)
    throw_error(ExitCode::kUsage, quote(world->written, *world), " is not the number of launched ranks: there are ", launched,
                "; write world_size ", launched, ", or launch ", *size, " ranks");
  return *size;
}

void finish_modelscope(GivenSettings* given, bool is_form, const std::string& source, TranslationNotes* notes,
                       std::vector<std::string>* notices) {
  finish_model(given, is_form, source);
  finish_data(given, notes);
  detail::finish_optimizer(given, is_form);
  detail::finish_lr_scheduler(given, is_form, notices);
  finish_metric_rules(given, notes);
  finish_outputs(given, is_form, notes);
  take_pending(given, "modelscope.use_model_config");
  std::vector<std::string> without, names;
  for (const auto& [name, setting] : given->all())
    if (name.rfind("modelscope.no_effect.", 0) == 0) names.push_back(name);
  for (const auto& name : names) {
    auto setting = take_pending(given, name);
    if (setting) without.push_back(cat(setting->written, " (", find_modelscope_name(setting->written)->effect, ")"));
  }
  if (!without.empty()) notices->push_back(cat("flags without effect: ", join(without, "; ")));
}

}  // namespace plait
