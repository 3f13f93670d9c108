// ModelScope's flags and flat keys, metrics by name, and how each is recorded.
#include <algorithm>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/config/hugging_face.h"
#include "plait/config/modelscope.h"
#include "plait/config/scalar.h"

namespace plait {

namespace {

const std::string kNoEffect = "modelscope.no_effect.", kMustBeOff = "modelscope.off.";

std::string word_of(const GivenSetting& given) {
  if (given.value.kind != SettingNode::Kind::kScalar) throw_error(ExitCode::kUsage, quote(given.written, given), " must be one value");
  return given.value.text;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out(1);
  for (char c : text) {
    if (c == separator) out.emplace_back();
    else if (c != ' ') out.back().push_back(c);
  }
  return out;
}

// "seq-cls-metric" -> accuracy, f1, loss.
std::vector<std::string> metrics_called(const std::string& word, const GivenSetting& given) {
  if (word == "seq-cls-metric") return {"accuracy", "f1", "loss"};
  if (word == "loss-metric") return {"loss"};
  if (auto known = parse_enum_word<Metric>(word)) return {enum_word(*known)};
  throw_error(ExitCode::kUsage, quote(given.written, given), ": metric ", word,
              " is not available; one of accuracy, f1, loss, ppl, seq-cls-metric");
}

void add_metrics(GivenSetting given, const std::vector<std::string>& words, GivenSettings* out) {
  std::vector<std::string> metrics;
  for (const auto& word : words)
    for (const auto& metric : metrics_called(word, given))
      if (std::find(metrics.begin(), metrics.end(), metric) == metrics.end()) metrics.push_back(metric);
  std::string origin = given.origin;
  given.value = SettingNode{};
  given.value.kind = SettingNode::Kind::kSequence;
  given.value.origin = origin;
  for (const auto& metric : metrics) given.value.items.push_back(scalar_node(metric, origin));
  out->add("evaluation.metrics", std::move(given));
}

// "weight_decay=0.01,eps=1e-6" -> one entry each.
void add_pairs(const GivenSetting& given, const std::string& prefix, GivenSettings* out) {
  for (const auto& pair : split(word_of(given), ',')) {
    size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      throw_error(ExitCode::kUsage, quote(given.written, given), " is not NAME=VALUE,NAME=VALUE");
    GivenSetting one = given;
    one.value = scalar_node(pair.substr(equals + 1), given.origin);
    std::string name = pair.substr(0, equals);
    if (prefix == "train.optimizer.params." && SettingNames().canonical(prefix + name).empty())
      throw_error(ExitCode::kUsage, quote(given.written, given), ": the optimizer has no ", name, "; it has ",
                  SettingNames().members("train.optimizer.params"));
    out->add(prefix + name, one);
  }
}

void add_data_name(const GivenSetting& given, const std::string& use, GivenSettings* out) {
  std::string word = word_of(given);
  for (const char* ending : {".jsonl", ".json", ".tsv", ".csv", ".txt"})
    if (word.size() > std::string(ending).size() && word.rfind(ending) == word.size() - std::string(ending).size())
      return out->add("dataset." + use + ".file", given);
  out->add("modelscope.hub_data." + use, given);
}

bool is_unavailable(const std::string& name) {
  const auto& names = unavailable_names();
  return std::any_of(names.begin(), names.end(), [&](const UnavailableName& one) { return one.name == name; });
}

}  // namespace

const std::vector<ModelScopeName>& modelscope_names() {
  const std::string hub = "data sets on a hub are not fetched", every_row = "every row is used",
                    upload = "uploading to a hub is not available";
  static const std::vector<ModelScopeName> names = {
      {"train_dataset_name", "modelscope.hub_data.train", "a local .jsonl, .tsv, .csv or .txt file", true},
      {"val_dataset_name", "modelscope.hub_data.valid", "a local file", true},
      {"train_subset_name", kNoEffect, hub, true},
      {"val_subset_name", kNoEffect, hub, true},
      {"train_split", kNoEffect, hub, true},
      {"val_split", kNoEffect, hub, true},
      {"train_dataset_namespace", kNoEffect, hub, true},
      {"val_dataset_namespace", kNoEffect, hub, true},
      {"dataset_json_file", kMustBeOff, hub + ": give --train_file and --valid_file", true},
      {"model_revision", kNoEffect, "models on a hub are not fetched", true},
      {"model_type", kNoEffect, "config.json of the model folder says it"},
      {"train_data_worker", kNoEffect, "all cores tokenise before the first step", true},
      {"eval_data_worker", kNoEffect, "all cores tokenise before the first step", true},
      {"train_shuffle", "train.shuffle", "", true},
      {"eval_shuffle", kNoEffect, "metrics do not depend on the order of rows", true},
      {"train_drop_last", kMustBeOff, every_row, true},
      {"eval_drop_last", kMustBeOff, every_row, true},
      {"optimizer", "modelscope.optimizer", "AdamW, Adam or SGD"},
      {"optimizer_params", "train.optimizer.params", "name=value,name=value"},
      {"lr_scheduler", "modelscope.lr_scheduler.type", "a class of torch.optim.lr_scheduler, noam, or a native word"},
      {"lr_scheduler_params", "modelscope.lr_scheduler", "name=value,name=value: arguments of that class"},
      {"lr_strategy", "modelscope.lr_options.lr_strategy", "by_epoch, by_step or no", true},
      {"logging_interval", "train.logging_steps", "", true},
      {"eval_interval", "evaluation.period.interval", "", true},
      {"eval_metrics", "evaluation.metrics", "accuracy, f1, loss, ppl, seq-cls-metric", true},
      {"save_interval", "train.save.interval", "", true},
      {"max_checkpoint_num", "train.save.keep", "", true},
      {"save_best_checkpoint", kNoEffect, "output_best/ is always written", true},
      {"max_checkpoint_num_best", kNoEffect, "only the best weights are kept", true},
      {"metric_rule_for_best_model", "modelscope.best_rule", "max or min: must agree with the metric", true},
      {"push_to_hub_best", kMustBeOff, upload, true},
      {"repo_id", kNoEffect, upload, true},
      {"hub_token", kNoEffect, upload},
      {"private_hub", kNoEffect, upload, true},
      {"hub_revision", kNoEffect, upload, true},
      {"repo_id_best", kNoEffect, upload, true},
      {"hub_token_best", kNoEffect, upload, true},
      {"private_hub_best", kNoEffect, upload, true},
      {"hub_revision_best", kNoEffect, upload, true},
      {"trainer", kNoEffect, "there is one trainer", true},
      {"preprocessor", kNoEffect, "text becomes tokens as tokenizer.json of the model folder says"},
      {"use_megatron", kNoEffect, "the sizes say it", true},
      {"use_model_config", "modelscope.use_model_config", "true: configuration.json of the model folder is the settings file", true},
      {"world_size", "modelscope.world_size", "ranks of the run; data_parallel_size follows", true},
      {"src_txt", "dataset.train.text_col", "and dataset.valid.text_col", true},
      {"tgt_txt", "modelscope.tgt_txt", "not available: pairs of prompt and target", true},
      {"first_sequence", "dataset.train.text_col", "and dataset.valid.text_col", true},
      {"second_sequence", "dataset.train.text_pair_col", "and dataset.valid.text_pair_col", true},
      {"label", "dataset.train.label_col", "and dataset.valid.label_col", true},
      {"model_dir", "model.path", ""},
      {"save_checkpoint_epochs", "train.save.interval", "weights every n epochs"},
  };
  return names;
}

const ModelScopeName* find_modelscope_name(const std::string& name) {
  for (const auto& known : modelscope_names())
    if (known.name == name) return &known;
  return nullptr;
}

void collect_modelscope_name(const ModelScopeName& name, GivenSetting given, GivenSettings* out) {
  if (given.value.is_null()) return;
  if (name.canonical == kNoEffect) return out->add(kNoEffect + name.name, std::move(given));
  if (name.canonical == kMustBeOff) {
    bool off = given.value.kind == SettingNode::Kind::kScalar && (given.value.text.empty() || parse_bool_text(given.value.text) == false ||
                                                                  given.value.text == "none" || given.value.text == "None");
    if (!off) throw_error(ExitCode::kUsage, quote(name.name, given), ": ", name.effect);
    return;
  }
  if (name.name == "train_dataset_name" || name.name == "val_dataset_name")
    return add_data_name(given, name.name == "train_dataset_name" ? "train" : "valid", out);
  if (name.name == "optimizer_params" || name.name == "lr_scheduler_params") return add_pairs(given, name.canonical + ".", out);
  if (name.name == "eval_metrics") {
    std::vector<std::string> words;
    if (given.value.kind == SettingNode::Kind::kScalar) words = split(given.value.text, ',');
    for (const auto& item : given.value.items) words.push_back(item.text);
    return add_metrics(std::move(given), words, out);
  }
  if (name.name == "src_txt" || name.name == "first_sequence" || name.name == "second_sequence" || name.name == "label") {
    std::string column = name.name == "label" ? "label_col" : name.name == "second_sequence" ? "text_pair_col" : "text_col";
    if (name.name == "second_sequence" && (word_of(given) == "None" || word_of(given) == "none")) return;  // argparse's way to say none
    out->add("dataset.train." + column, given);
    return out->add("dataset.valid." + column, std::move(given));
  }
  if (name.name == "lr_scheduler") {
    std::string word = word_of(given);
    bool native = word != "noam" && parse_enum_word<LrSchedulerKind>(word);
    return out->add(native ? "train.lr_scheduler.type" : name.canonical, std::move(given));
  }
  if (name.name == "save_checkpoint_epochs") {
    GivenSetting strategy = given;
    strategy.value = scalar_node("epoch", given.origin);
    out->add("train.save.strategy", strategy);
  }
  out->add(name.canonical, std::move(given));
}

void translate_modelscope_flat(FileTranslator* file, const SettingNames& names) {
  for (const Place& entry : file->entries(file->root())) {
    if (entry.node->is_null()) {
      file->at(file->root(), entry.path);     // read, and nothing
    } else if (entry.path == "batch_size") {  // per device in this form
      file->become(entry, "train.per_device_train_batch_size");
    } else if (const ModelScopeName* known = find_modelscope_name(entry.path)) {
      if (known->canonical == kNoEffect) file->ignore(entry, known->effect);
      else file->derive(entry, known->effect);
      if (known->canonical != kNoEffect) collect_modelscope_name(*known, entry.given(), file->out());
    } else if (is_unavailable(entry.path) || entry.path == "local_rank" || !names.canonical_of_flag(entry.path).empty() ||
               detail::is_message_call(entry.path)) {
      file->ignore(entry, "it asks for nothing");  // unless it became a setting, which is the note that counts
      collect_flag(entry.path, *entry.node, entry.origin, names, false, file->out());
    }
  }
}

namespace detail {

void translate_metrics(FileTranslator* file, const Place& metrics) {
  if (!metrics) return;
  std::vector<std::string> words;
  for (Place item : file->items(metrics)) {
    if (item.is_map()) item = file->at(item, "type");
    words.push_back(file->text(item));
  }
  file->derive(metrics, "evaluation.metrics");
  add_metrics(metrics.given(), words, file->out());
}

}  // namespace detail

}  // namespace plait
