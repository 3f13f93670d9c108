#include "plait/config/hugging_face.h"

#include <algorithm>
#include <cmath>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/config/scalar.h"
#include "plait/config/setting_info.h"

namespace plait {

namespace {

const std::string kPrefix = "hugging_face.";

// Takes one pending entry out of `given`; nothing when not given or null.
std::optional<GivenSetting> take(GivenSettings* given, const std::string& name) {
  const GivenSetting* found = given->find(kPrefix + name);
  std::optional<GivenSetting> out;
  if (found) out = *found;
  given->erase(kPrefix + name);
  if (out && out->value.kind != SettingNode::Kind::kScalar) throw_error(ExitCode::kUsage, quote(name, *out), " must be one value");
  return out;
}

std::optional<bool> take_bool(GivenSettings* given, const std::string& name) {
  auto found = take(given, name);
  if (!found) return std::nullopt;
  auto value = parse_bool_text(found->value.text);
  if (!value) throw_error(ExitCode::kUsage, quote(name, *found), " is not true or false");
  return value;
}

std::string text_of(const GivenSettings& given, const std::string& name, const std::string& otherwise) {
  const GivenSetting* found = given.find(name);
  return found && found->value.kind == SettingNode::Kind::kScalar ? found->value.text : otherwise;
}

// Replaces a native setting by what a Hugging Face name asks for; `from` keeps name and place for messages.
void put(GivenSettings* given, const std::string& name, GivenSetting from, const std::string& text) {
  from.value.kind = SettingNode::Kind::kScalar;
  from.value.text = text;
  given->erase(name);
  given->add(name, std::move(from));
}

// The same for a setting that must not be given natively as well.
void put_new(GivenSettings* given, const std::string& name, GivenSetting from, const std::string& text) {
  from.value = SettingNode{};
  from.value.kind = SettingNode::Kind::kScalar;
  from.value.text = text;
  given->add(name, std::move(from));
}

void finish_seed(GivenSettings* given, bool is_hugging_face_form) {
  auto data_seed = take(given, "data_seed");
  if (!data_seed) return;
  std::string seed = text_of(*given, "train.seed", is_hugging_face_form ? "42" : "0");
  if (parse_integer_text(data_seed->value.text) != parse_integer_text(seed))
    throw_error(ExitCode::kUsage, quote("data_seed", *data_seed), " differs from seed ", seed, ": plait has one seed; nearest valid value ",
                seed);
}

// save_only_model true: no checkpoints are asked for but weights, which train.save writes.
void finish_weights(GivenSettings* given, const std::optional<GivenSetting>& strategy, const std::optional<GivenSetting>& steps,
                    const std::optional<GivenSetting>& limit, const GivenSetting& only_model, std::vector<std::string>* notices) {
  std::string word = strategy ? strategy->value.text : "steps";  // Hugging Face's default
  auto kind = parse_enum_word<SaveStrategy>(word);
  if (!kind && word != "best" && word != "False")
    throw_error(ExitCode::kUsage, quote("save_strategy", *strategy), " is not one of no, epoch, steps, best");
  bool saves = kind && *kind != SaveStrategy::kNo;
  if (saves) put_new(given, "train.save.strategy", strategy ? *strategy : only_model, enum_word(*kind));
  if (saves && *kind == SaveStrategy::kSteps) {
    put_new(given, "train.save.interval", steps ? *steps : strategy ? *strategy : only_model, steps ? steps->value.text : "500");
    if (!steps) notices->push_back("save_steps is not given: weights every 500 steps, as in Hugging Face");
  } else if (steps) {
    notices->push_back(cat(quote("save_steps", *steps), " has no effect with save_strategy ", word));
  }
  if (saves && limit) put_new(given, "train.save.keep", *limit, limit->value.text);
  if (!saves && limit) notices->push_back(cat(quote("save_total_limit", *limit), " has no effect with save_strategy ", word));
  if (saves)
    notices->push_back(
        cat(quote("save_only_model", only_model), ": weights go to weights/step_N in work_dir (Hugging Face: checkpoint-N)"));
}

void finish_saving(GivenSettings* given, bool is_hugging_face_form, std::vector<std::string>* notices) {
  auto strategy = take(given, "save_strategy");
  auto steps = take(given, "save_steps");
  auto limit = take(given, "save_total_limit");
  auto only_model_given =
      given->find(kPrefix + "save_only_model") ? std::optional(*given->find(kPrefix + "save_only_model")) : std::nullopt;
  if (take_bool(given, "save_only_model").value_or(false)) return finish_weights(given, strategy, steps, limit, *only_model_given, notices);
  std::string word = strategy ? strategy->value.text : "";
  bool off = word == "no" || word == "false" || word == "False" || word == "best";
  if (strategy && !off) {
    if (word != "steps" && word != "epoch")
      throw_error(ExitCode::kUsage, quote("save_strategy", *strategy), " is not one of no, epoch, steps, best");
    throw_error(ExitCode::kUsage, quote("save_strategy", *strategy),
                ": checkpoints during training are not available yet; accepted: no, best; save_only_model: true saves the weights alone");
  }
  for (const auto* given_save : {&steps, &limit}) {
    if (!*given_save) continue;
    const GivenSetting& save = **given_save;
    if (!off)
      throw_error(
          ExitCode::kUsage, quote(save.written, save),
          ": checkpoints during training are not available yet; say save_strategy: no, or save_only_model: true for the weights alone");
    notices->push_back(cat(quote(save.written, save), " has no effect with save_strategy ", word));
  }
  if (is_hugging_face_form && !strategy)
    notices->push_back(
        "save_strategy is not given: plait writes output/ at the end and output_best/, no checkpoints in between yet (Hugging Face: every "
        "500 steps)");
}

// report_to tensorboard: event files in logging_dir, by default output_dir/runs.
void finish_reports(GivenSettings* given, bool is_hugging_face_form, std::vector<std::string>* notices) {
  const GivenSetting* found = given->find(kPrefix + "report_to");
  std::optional<GivenSetting> report = found ? std::optional(*found) : std::nullopt;
  given->erase(kPrefix + "report_to");
  auto folder = take(given, "logging_dir");
  bool tensorboard = false;
  std::vector<std::string> words;
  if (report && report->value.kind == SettingNode::Kind::kScalar) words.push_back(report->value.text);
  if (report)
    for (const auto& item : report->value.items) words.push_back(item.text);
  for (const auto& word : words) {
    if (word == "tensorboard" || word == "[tensorboard]") tensorboard = true;
    else if (word != "none" && word != "[none]" && word != "[]" && !word.empty())
      throw_error(ExitCode::kUsage, quote("report_to", *report), ": ", word, " is not available; accepted: none, tensorboard");
  }
  if (!tensorboard) {
    if (folder) notices->push_back(cat(quote("logging_dir", *folder), " has no effect without report_to tensorboard"));
    return;
  }
  if (folder) {
    given->add("train.tensorboard.dir", *folder);
  } else if (!given->has("train.tensorboard.dir")) {
    const GivenSetting* work_dir = given->find("train.work_dir");
    GivenSetting from = *report;
    from.command_line = work_dir ? work_dir->command_line : true;  // the place that the relative path of work_dir counts from
    put_new(given, "train.tensorboard.dir", from,
            text_of(*given, "train.work_dir", is_hugging_face_form ? "trainer_output" : "runs/plait") + "/runs");
  }
  const GivenSetting* every = given->find("train.logging_steps");
  if (every && !given->has("train.tensorboard.interval") && parse_integer_text(every->value.text).value_or(0) > 0) {
    GivenSetting from = *every;
    put(given, "train.tensorboard.interval", from, from.value.text);
  }
}

void finish_evaluation(GivenSettings* given, bool is_hugging_face_form, std::vector<std::string>* notices) {
  std::string word = text_of(*given, "evaluation.period.eval_strategy", is_hugging_face_form ? "no" : "epoch");
  auto strategy = parse_enum_word<EvalStrategy>(word);  // a wrong word is reported when the setting itself is read
  auto steps = take(given, "eval_steps");
  const GivenSetting* interval = given->find("evaluation.period.interval");
  if (interval && steps && interval->command_line == steps->command_line)
    throw_error(ExitCode::kUsage, "evaluation.period.interval is given twice: as ", interval->written, " (", interval->origin,
                ") and eval_steps (", steps->origin, ")");
  if (strategy == EvalStrategy::kSteps && interval && interval->command_line) {
    return;  // the flag replaces the file's eval_steps
  }
  if (strategy == EvalStrategy::kSteps && steps) {
    put(given, "evaluation.period.interval", *steps, steps->value.text);
  } else if (steps) {
    notices->push_back(cat(quote("eval_steps", *steps), " has no effect with eval_strategy ", word));
  } else if (strategy == EvalStrategy::kSteps && is_hugging_face_form && !given->has("evaluation.period.interval")) {
    std::string every = text_of(*given, "train.logging_steps", "500");
    put(given, "evaluation.period.interval", *given->find("evaluation.period.eval_strategy"), every);
    notices->push_back(cat("eval_steps is not given: evaluation every ", every, " steps, as in Hugging Face"));
  }
  if (is_hugging_face_form && strategy == EvalStrategy::kNo && given->has("dataset.valid.file") &&
      !given->has("evaluation.period.eval_strategy"))
    notices->push_back("eval_strategy is not given: no evaluation during training, as in Hugging Face; eval_strategy: epoch turns it on");
}

void finish_best_model(GivenSettings* given, bool is_hugging_face_form, std::vector<std::string>* notices) {
  auto load_best_given = take(given, "load_best_model_at_end");
  auto metric = take(given, "metric_for_best_model");
  auto greater_given =
      given->find(kPrefix + "greater_is_better") ? std::optional(*given->find(kPrefix + "greater_is_better")) : std::nullopt;
  auto greater = take_bool(given, "greater_is_better");
  bool load_best = load_best_given && parse_bool_text(load_best_given->value.text).value_or(false);
  if (load_best_given && !parse_bool_text(load_best_given->value.text))
    throw_error(ExitCode::kUsage, quote("load_best_model_at_end", *load_best_given), " is not true or false");
  if (load_best) {
    std::string strategy = text_of(*given, "evaluation.period.eval_strategy", is_hugging_face_form ? "no" : "epoch");
    if (parse_enum_word<EvalStrategy>(strategy) == EvalStrategy::kNo)
      throw_error(ExitCode::kUsage, quote("load_best_model_at_end", *load_best_given), " needs an evaluation: eval_strategy is ", strategy,
                  "; nearest valid value epoch");
    notices->push_back("load_best_model_at_end: the best weights are in output_best/, the last ones in output/");
    if (!metric) {
      metric = load_best_given;
      metric->value.text = "loss";  // Hugging Face's default
    }
  }
  if (!metric && !greater) return;
  std::string task = text_of(*given, "task", enum_word(Task::kTextClassification));
  std::vector<std::string> metrics = task == enum_word(Task::kTextGeneration) ? std::vector<std::string>{"loss", "perplexity"}
                                                                              : std::vector<std::string>{"accuracy", "f1", "loss"};
  if (const GivenSetting* listed = given->find("evaluation.metrics")) {
    metrics.clear();
    if (listed->value.kind == SettingNode::Kind::kScalar) metrics.push_back(listed->value.text);
    for (const auto& item : listed->value.items) metrics.push_back(item.text);
  }
  std::string word = metric ? metric->value.text : metrics.front();
  if (word.rfind("eval_", 0) == 0) word = word.substr(5);
  auto known = parse_enum_word<Metric>(word);
  if (!known)
    throw_error(ExitCode::kUsage, "metric_for_best_model ", word, metric ? cat(" (", metric->origin, ")") : std::string(), " is not ",
                rule_of_words(word, enum_choices<Metric>(), "loss"));
  bool rises = *known == Metric::kAccuracy || *known == Metric::kF1;
  if (greater && *greater != rises)
    throw_error(ExitCode::kUsage, quote("greater_is_better", *greater_given), " contradicts ", word, ", which is better when ",
                rises ? "greater" : "smaller");
  if (!metric) return;
  metrics.erase(std::remove(metrics.begin(), metrics.end(), word), metrics.end());
  metrics.insert(metrics.begin(), word);
  GivenSetting from = *metric;
  from.value = SettingNode{};
  from.value.kind = SettingNode::Kind::kSequence;
  for (const auto& name : metrics) {
    SettingNode item;
    item.kind = SettingNode::Kind::kScalar;
    item.text = name;
    from.value.items.push_back(std::move(item));
  }
  given->erase("evaluation.metrics");
  given->add("evaluation.metrics", std::move(from));
}

void finish_optim(GivenSettings* given) {
  auto optim = take(given, "optim");
  if (!optim) return;
  std::string word = optim->value.text;
  bool adam = word == "adamw_torch" || word == "adamw_torch_fused" || word == "adamw_hf";
  if (!adam && word != "sgd")
    throw_error(ExitCode::kUsage, quote("optim", *optim), " is not available; one of adamw_torch, adamw_torch_fused, sgd");
  put(given, "train.optimizer.type", *optim, adam ? "AdamW" : "SGD");
}

// Names that both sides know with another formula.
void finish_schedule(GivenSettings* given) {
  const GivenSetting* type = given->find("train.lr_scheduler.type");
  if (!type || type->written != "lr_scheduler_type") return;
  if (type->value.text == "inverse_sqrt")
    throw_error(
        ExitCode::kUsage, quote("lr_scheduler_type", *type),
        ": Hugging Face's rises to learning_rate, plait's (train.lr_scheduler.type inverse_sqrt, also called noam) to learning_rate / "
        "sqrt(warmup_steps); give train.lr_scheduler.type and learning_rate x sqrt(warmup_steps)");
  if (type->value.text == "polynomial" && !given->has("train.lr_scheduler.min_lr"))
    put(given, "train.lr_scheduler.min_lr", GivenSetting(*type), "1e-07");  // Hugging Face's lr_end
}

void finish_warmup(GivenSettings* given, std::vector<std::string>* notices) {
  const GivenSetting* type = given->find("train.lr_scheduler.type");
  const GivenSetting* steps = given->find("train.lr_scheduler.warmup_steps");
  const GivenSetting* ratio = given->find("train.lr_scheduler.warmup_ratio");
  auto above_zero = [](const GivenSetting* given) { return given && parse_real_text(given->value.text).value_or(0) > 0; };
  if (type && type->written == "lr_scheduler_type" && type->value.text == "constant" && (above_zero(steps) || above_zero(ratio)))
    throw_error(ExitCode::kUsage, quote("lr_scheduler_type", *type),
                " has no warm-up in Hugging Face, but one is given; nearest valid value constant_with_warmup");
  if (above_zero(steps) && above_zero(ratio) && ratio->written == "warmup_ratio") {
    notices->push_back(cat(quote("warmup_ratio", *ratio), " has no effect: warmup_steps ", steps->value.text, " wins"));
    given->erase("train.lr_scheduler.warmup_ratio");
  }
}

// Values Hugging Face takes and plait cannot: shares of all steps, which are not counted before the data are read, and parts of epochs.
void refuse_fractions(const std::string& name, const GivenSetting& given) {
  double value = parse_real_text(given.value.text).value_or(0);
  bool is_share = name == "logging_steps" || name == "eval_steps" || name == "save_steps";
  if (is_share && value > 0 && value < 1)
    throw_error(ExitCode::kUsage, quote(name, given),
                " is a share of all steps, which are not counted before the data are read; "
                "give a number of steps, nearest valid value 1");
  if (name != "num_train_epochs" || !(value > 0 && value < 1e12) || value == std::floor(value)) return;
  auto below = static_cast<int64_t>(value);
  throw_error(ExitCode::kUsage, quote(name, given), " is not a whole number of epochs; nearest valid ",
              below > 0 ? cat("values ", below, " and ") : "value ", below + 1, ", or max_steps for a run that ends inside an epoch");
}

}  // namespace

void set_hugging_face_defaults(Config* config) {
  config->train.seed = 42;
  config->train.work_dir = "trainer_output";
  config->evaluation.strategy = EvalStrategy::kNo;
  config->evaluation.per_device_batch_size = 8;
}

std::string translate_hugging_face(const HuggingFaceName& name, GivenSetting* given) {
  if (given->value.kind != SettingNode::Kind::kScalar) return name.canonical;
  std::string& text = given->value.text;
  refuse_fractions(name.name, *given);
  if (name.name == "max_steps" && parse_integer_text(text) == -1) text = "0";
  if (name.name == "warmup_steps") {
    auto value = parse_real_text(text);
    if (value && *value > 0 && *value < 1) return "train.lr_scheduler.warmup_ratio";
  }
  return name.canonical;
}

void finish_hugging_face(GivenSettings* given, bool is_hugging_face_form, std::vector<std::string>* notices) {
  finish_seed(given, is_hugging_face_form);
  finish_saving(given, is_hugging_face_form, notices);
  finish_reports(given, is_hugging_face_form, notices);
  finish_evaluation(given, is_hugging_face_form, notices);
  finish_best_model(given, is_hugging_face_form, notices);
  finish_optim(given);
  finish_schedule(given);
  finish_warmup(given, notices);
  if (auto workers = take(given, "dataloader_num_workers"); workers && parse_integer_text(workers->value.text) != 0)
    notices->push_back(cat(quote("dataloader_num_workers", *workers), " has no effect: all cores tokenise before the first step"));
  if (auto name = take(given, "run_name")) notices->push_back(cat(quote("run_name", *name), " has no effect: a run is its work_dir"));
  auto quiet_given = given->find(kPrefix + "disable_tqdm") ? std::optional(*given->find(kPrefix + "disable_tqdm")) : std::nullopt;
  if (auto quiet = take_bool(given, "disable_tqdm")) put(given, "train.progress_bar", *quiet_given, *quiet ? "false" : "true");
  for (const auto& known : hugging_face_names()) {
    if (known.canonical != kPrefix + "no_effect." + known.name) continue;
    if (const GivenSetting* found = given->find(known.canonical))
      notices->push_back(cat(known.name, " (", found->origin, ") has ", known.effect));
    given->erase(known.canonical);
  }
  for (const auto& [name, setting] : given->all()) {
    for (const auto& known : hugging_face_names())
      if (known.v4 && known.name == setting.written && is_hugging_face_form)
        notices->push_back(cat(known.name, " (", setting.origin, ") is a Hugging Face v4 name; v5 writes ",
                               known.name == "warmup_ratio" ? "warmup_steps below 1" : "eval_strategy"));
  }
}

}  // namespace plait
