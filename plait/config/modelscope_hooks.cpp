// ModelScope's hooks: a list under train.hooks, four of them also in fixed places (train.logging, train.checkpoint, evaluation.period).
#include <algorithm>
#include <map>

#include "plait/base/error.h"
#include "plait/config/modelscope.h"
#include "plait/config/scalar.h"

namespace plait::detail {

namespace {

const std::string kNoUpload = "uploading to a hub is not available";

void translate_checkpoint_period(FileTranslator* file, const Place& hook) {
  if (!hook) return;
  file->become(file->at(hook, "interval"), "train.save.interval");
  Place strategy = file->at(hook, "save_strategy"), by_epoch = file->at(hook, "by_epoch");
  if (strategy && by_epoch) {
    bool epochs = file->flag(by_epoch, true);
    std::string word = file->text(strategy);
    if (word != "no" && epochs != (word == "by_epoch"))
      throw_error(ExitCode::kUsage, quote(strategy.path, strategy.given()), " contradicts ", quote(by_epoch.path, by_epoch.given()),
                  "; keep one");
    file->derive(by_epoch, "agrees with save_strategy");
  }
  if (strategy) file->become(strategy, "train.save.strategy");
  else if (by_epoch) file->become(by_epoch, "train.save.strategy", file->flag(by_epoch, true) ? "epoch" : "steps");
  else file->become(hook, "train.save.strategy", "epoch");
  file->become(file->at(hook, "max_checkpoint_num"), "train.save.keep");
  for (const char* name : {"save_dir", "output_dir", "output_sub_dir"})
    if (Place place = file->at(hook, name))
      file->refuse(place, "weights go to output/ and weights/ in work_dir; leave it out and set train.work_dir");
  file->ignore(file->at(hook, "save_last"), "the last weights are always in output/");
  file->only_off(file->at(hook, "push_to_hub"), kNoUpload);
  file->only_off(file->at(hook, "upload_strategy"), kNoUpload);
  for (const char* name : {"hub_repo_id", "hub_token", "private_hub", "hub_revision"}) file->ignore(file->at(hook, name), kNoUpload);
  file->only_off(file->at(hook, "save_trainer_state"),
                 "checkpoints to resume from are not available yet; weights are saved. Nearest valid value false");
}

void translate_best(FileTranslator* file, const Place& hook) {
  if (!hook) return;
  file->become(file->at(hook, "metric_key"), "modelscope.best_metric");
  file->become(file->at(hook, "rule"), "modelscope.best_rule");
  for (const char* name : {"interval", "by_epoch", "save_strategy"})
    file->ignore(file->at(hook, name), "output_best/ is written at every evaluation that is better");
  Place save = file->at(hook, "save_best");
  if (save && !file->flag(save, true)) file->ignore(save, "output_best/ is always written");
  else file->derive(save, "the best weights are in output_best/");
  file->ignore(file->at(hook, "max_checkpoint_num"), "only the best weights are kept");
  file->derive(file->at(hook, "restore_best"), "the best weights stay in output_best/, the last ones in output/");
  for (const char* name : {"save_file_name", "save_dir", "output_dir", "output_sub_dir"})
    if (Place place = file->at(hook, name)) file->refuse(place, "the best weights go to output_best/ in work_dir; leave it out");
  file->only_off(file->at(hook, "push_to_hub"), kNoUpload);
  for (const char* name : {"hub_repo_id", "hub_token", "private_hub", "hub_revision"}) file->ignore(file->at(hook, name), kNoUpload);
  file->only_off(file->at(hook, "save_trainer_state"), "checkpoints to resume from are not available yet. Nearest valid value false");
  file->derive(hook, "the best weights are in output_best/");
}

void translate_logging(FileTranslator* file, const Place& hook) {
  if (!hook) return;
  Place interval = file->at(hook, "interval");
  if (interval) file->become(interval, "train.logging_steps");
  else file->become(hook, "train.logging_steps", "10");
  file->ignore(file->at(hook, "out_dir"), "metrics.jsonl and logs/ are in work_dir");
  for (const char* name : {"by_epoch", "ignore_last", "reset_flag", "ignore_rounding_keys", "rounding_digits"})
    file->ignore(file->at(hook, name), "the line's form is plait's; metrics.jsonl has every step in full precision");
}

void translate_tensorboard(FileTranslator* file, const Place& hook) {
  Place dir = file->at(hook, "out_dir"), interval = file->at(hook, "interval");
  if (dir) file->become(dir, "train.tensorboard.dir");
  else file->become(hook, "modelscope.tensorboard_dir", "tensorboard_output");
  if (interval) file->become(interval, "train.tensorboard.interval");
  else file->become(hook, "train.tensorboard.interval", "10");
  for (const char* name : {"skip_keys", "ignore_last", "reset_flag", "by_epoch"})
    file->ignore(file->at(hook, name), "every scalar of metrics.jsonl is written");
}

void translate_early_stop(FileTranslator* file, const Place& hook) {
  Place strategy = file->at(hook, "early_stop_strategy");
  std::string word = strategy ? file->text(strategy) : "by_epoch";
  if (word == "no") return file->ignore(hook, "early_stop_strategy no");
  if (word != "by_epoch") file->refuse(strategy, "training is stopped at evaluations; nearest valid value by_epoch");
  file->derive(strategy, "training is stopped at evaluations");
  file->become(file->at(hook, "metric_key"), "modelscope.stop_metric");
  file->become(file->at(hook, "rule"), "modelscope.stop_rule");
  Place patience = file->at(hook, "patience");
  if (patience) file->become(patience, "train.early_stop.patience");
  else file->become(hook, "train.early_stop.patience", "3");
  file->become(file->at(hook, "min_delta"), "train.early_stop.min_delta");
  Place finite = file->at(hook, "check_finite");
  if (finite && !file->flag(finite, true))
    file->refuse(finite, "a loss that is not finite always ends the run (exit code 9); nearest valid value true");
  file->derive(finite, "a loss that is not finite always ends the run (exit code 9)");
  Place interval = file->at(hook, "interval");
  if (interval && file->number(interval) != 1.0) file->refuse(interval, "every evaluation counts; nearest valid value 1");
  file->derive(interval, "every evaluation counts");
}

// DeepspeedHook: its own arguments. The JSON it names is read by the caller of translate_modelscope, which knows folders.
void translate_deepspeed_hook(FileTranslator* file, const Place& hook) {
  file->become(file->at(hook, "config"), "modelscope.deepspeed_config");
  file->become(file->at(hook, "zero_stage"), "train.distributed.zero_stage");
  file->only_off(file->at(hook, "deepspeed_activation_checkpointing"),
                 "activation checkpointing is not available yet; nearest valid value false");
  file->ignore(file->at(hook, "save_zero_checkpoint"), "there are no sharded optimizer states to save");
  file->ignore(file->at(hook, "with_mpu"), "tensor and data ranks are always known to the trainer");
  file->derive(hook, "DeepSpeed itself is not used; its settings are read");
}

using HookReader = void (*)(FileTranslator*, const Place&);

const std::map<std::string, HookReader>& hook_readers() {
  static const std::map<std::string, HookReader> readers = {
      {"OptimizerHook", translate_optimizer_options},
      {"TorchAMPOptimizerHook",
       [](FileTranslator* file, const Place& hook) {
         translate_optimizer_options(file, hook);
         file->become(hook, "train.fp16", "true");
       }},
      {"LrSchedulerHook", translate_lr_options},
      {"CheckpointHook", translate_checkpoint_period},
      {"BestCkptSaverHook", translate_best},
      {"EvaluationHook", translate_evaluation_period},
      {"EarlyStopHook", translate_early_stop},
      {"TextLoggerHook", translate_logging},
      {"TensorboardHook", translate_tensorboard},
      {"DeepspeedHook", translate_deepspeed_hook},
      {"MegatronHook",
       [](FileTranslator* file, const Place& hook) { file->derive(hook, "the megatron section or the layout flags say the sizes"); }},
      {"DDPHook",
       [](FileTranslator* file, const Place& hook) {
         file->ignore(file->at(hook, "launcher"), "plait finds the launcher by its environment");
         file->derive(hook, "data ranks are what the sizes leave");
       }},
      {"IterTimerHook", [](FileTranslator* file, const Place& hook) { file->derive(hook, "metrics.jsonl has the time of every step"); }},
      {"AddLrLogHook",
       [](FileTranslator* file, const Place& hook) { file->derive(hook, "metrics.jsonl has the learning rate of every step"); }},
  };
  return readers;
}

// Hooks of features plait does not have, and why.
const std::map<std::string, std::string>& unavailable_hooks() {
  static const std::map<std::string, std::string> hooks = {
      {"ApexAMPOptimizerHook", "Apex is not available; TorchAMPOptimizerHook is mixed precision too"},
      {"PlateauLrSchedulerHook",
       "a schedule that follows a metric is not available; leave the hook out and choose one by epoch, such as StepLR"},
      {"SparsityHook", "pruning during training is not available"},
      {"SwiftHook", "adapters (LoRA and the like) are not available yet"},
      {"EfficientTunerHook", "adapters are not available yet"},
      {"ClipClampLogitScaleHook", "it belongs to image-text models, which are not available"},
  };
  return hooks;
}

// The fixed places of four hooks.
const std::map<std::string, std::string>& fixed_places() {
  static const std::map<std::string, std::string> places = {{"TextLoggerHook", "train.logging"},
                                                            {"CheckpointHook", "train.checkpoint.period"},
                                                            {"BestCkptSaverHook", "train.checkpoint.best"},
                                                            {"EvaluationHook", "evaluation.period"}};
  return places;
}

void translate_hook(FileTranslator* file, const std::string& type, const Place& place, const Place& hook) {
  auto bad = unavailable_hooks().find(type);
  if (bad != unavailable_hooks().end()) throw_error(ExitCode::kUsage, "hook ", type, " (", place.origin, "): ", bad->second);
  auto reader = hook_readers().find(type);
  if (reader != hook_readers().end()) return reader->second(file, hook);
  std::vector<std::string> known;
  for (const auto& [name, read] : hook_readers()) known.push_back(name);
  std::string near = nearest(type, known);
  throw_error(ExitCode::kUsage, "hook ", type, " (", place.origin, ") is not known; ",
              near.empty() ? "known: " + join(known) : "nearest: " + near);
}

// optimizer_hook {type: ...} and lr_scheduler_hook {type: ...}: the same hooks in the singular.
void translate_single_hook(FileTranslator* file, const Place& section) {
  if (!section) return;
  Place type = file->at(section, "type");
  if (!type) return;
  std::string name = file->text(type);
  file->derive(type, "hook " + name);
  translate_hook(file, name, type, section);
}

}  // namespace

void translate_evaluation_period(FileTranslator* file, const Place& period) {
  if (!period) return;
  file->become(file->at(period, "interval"), "evaluation.period.interval");
  Place strategy = file->at(period, "eval_strategy"), by_epoch = file->at(period, "by_epoch");
  if (strategy && by_epoch) {
    bool epochs = file->flag(by_epoch, true);
    std::string word = file->text(strategy);
    if (word != "no" && epochs != (word == "by_epoch" || word == "epoch"))
      throw_error(ExitCode::kUsage, quote(strategy.path, strategy.given()), " contradicts ", quote(by_epoch.path, by_epoch.given()),
                  "; keep one");
    file->derive(by_epoch, "agrees with eval_strategy");
  } else {
    file->become(by_epoch, "evaluation.period.by_epoch");
  }
  file->become(strategy, "evaluation.period.eval_strategy");
  file->only_off(file->at(period, "start_idx"), "evaluation starts with the first period; nearest valid value 0");
  file->derive(period, "evaluation by epoch");
}

void translate_hooks(FileTranslator* file, const Place& train, const Place& evaluation) {
  Place hooks = file->at(train, "hooks"), checkpoint = file->at(train, "checkpoint");
  std::map<std::string, Place> fixed = {{"train.logging", file->at(train, "logging")},
                                        {"train.checkpoint.period", file->at(checkpoint, "period")},
                                        {"train.checkpoint.best", file->at(checkpoint, "best")},
                                        {"evaluation.period", file->at(evaluation, "period")}};
  std::map<std::string, std::string> seen;
  auto read = [&](const std::string& type, Place place, Place hook) {
    auto [first, is_new] = seen.emplace(type, place.origin);
    if (!is_new) throw_error(ExitCode::kUsage, "hook ", type, " is given twice: ", first->second, " and ", place.origin, "; keep one");
    auto at = fixed_places().find(type);
    if (at != fixed_places().end() && fixed[at->second])
      throw_error(ExitCode::kUsage, "hook ", type, " (", place.origin, ") and ", at->second, " (", fixed[at->second].origin,
                  ") are two forms of one hook; keep one");
    translate_hook(file, type, place, hook);
  };
  if (hooks.is_map()) {  // by type, as in train.hooks.CheckpointHook.interval
    for (Place hook : file->entries(hooks)) read(hook.path.substr(hooks.path.size() + 1), hook, hook);
  } else {
    for (Place hook : file->items(hooks)) {
      if (!hook.is_map() || !hook.node->find("type")) file->refuse(hook, "a hook is {type: NAME, ...}");
      Place type = file->at(hook, "type");
      if (!type) file->refuse(hook, "a hook is {type: NAME, ...}");
      std::string name = file->text(type);
      file->derive(type, "hook " + name);
      hook.path = cat("train.hooks.", name);  // how ModelScope names an element of the list
      read(name, type, hook);
    }
  }
  translate_logging(file, fixed["train.logging"]);
  translate_checkpoint_period(file, fixed["train.checkpoint.period"]);
  translate_best(file, fixed["train.checkpoint.best"]);
  translate_evaluation_period(file, fixed["evaluation.period"]);
  translate_single_hook(file, file->at(train, "optimizer_hook"));
  translate_single_hook(file, file->at(train, "lr_scheduler_hook"));
  // A list without CheckpointHook saves nothing during training; no list at all saves every epoch.
  if (hooks && !hooks.command_line && !seen.count("CheckpointHook") && !fixed["train.checkpoint.period"]) {
    GivenSetting no_saving = hooks.given();
    no_saving.value = scalar_node("no", hooks.origin);
    file->out()->add("modelscope.save_strategy", no_saving);
  }
}

}  // namespace plait::detail
