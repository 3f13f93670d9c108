// ModelScope's optimizer and lr_scheduler sections: class names of torch.optim and torch.optim.lr_scheduler, options, warm-ups.
#include <algorithm>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/config/modelscope.h"
#include "plait/config/scalar.h"
#include "plait/config/setting_info.h"

namespace plait::detail {

namespace {

const std::string kScheduler = "modelscope.lr_scheduler.", kOptions = "modelscope.lr_options.", kNative = "train.lr_scheduler.",
                  kParams = "train.optimizer.params.";

struct ClassParameter {
  const char* name;
  const char* setting;     // after train.lr_scheduler.
  const char* by_default;  // torch's; nullptr = must be given
};
struct SchedulerClass {
  const char* name;
  const char* type;
  std::vector<ClassParameter> parameters;
};

const std::vector<SchedulerClass>& scheduler_classes() {
  static const std::vector<SchedulerClass> classes = {
      {"StepLR", "step", {{"step_size", "step_size", nullptr}, {"gamma", "gamma", "0.1"}}},
      {"MultiStepLR", "multi_step", {{"milestones", "milestones", nullptr}, {"gamma", "gamma", "0.1"}}},
      {"ExponentialLR", "exponential", {{"gamma", "gamma", nullptr}}},
      {"PolynomialLR", "polynomial", {{"total_iters", "total_periods", "5"}, {"power", "power", "1"}}},
      {"LinearLR",
       "ramp",
       {{"start_factor", "start_factor", "0.3333333333333333"}, {"end_factor", "end_factor", "1"}, {"total_iters", "total_periods", "5"}}},
      {"CosineAnnealingLR", "cosine", {{"T_max", "total_periods", nullptr}, {"eta_min", "min_lr", "0"}}},
      {"ConstantLR", "constant", {{"factor", "", "0.3333333333333333"}, {"total_iters", "", "5"}}},
      {"noam", "inverse_sqrt", {{"num_warmup_steps", "warmup_steps", "100"}}},
  };
  return classes;
}

std::vector<std::string> class_names() {
  std::vector<std::string> out;
  for (const auto& one : scheduler_classes()) out.push_back(one.name);
  return out;
}

// Adds what ModelScope's names say; of file and command line the latter wins, whichever names it uses.
void add_below_flags(GivenSettings* given, const std::string& name, GivenSetting setting) {
  const GivenSetting* there = given->find(name);
  if (there && there->command_line && !setting.command_line) return;
  if (there && !there->command_line && setting.command_line) given->erase(name);
  given->add(name, std::move(setting));
}

void add_text(GivenSettings* given, const std::string& name, GivenSetting from, const std::string& text) {
  from.value = scalar_node(text, from.origin);
  add_below_flags(given, name, std::move(from));
}

std::string scalar_of(const GivenSetting& given) {
  if (given.value.kind != SettingNode::Kind::kScalar) throw_error(ExitCode::kUsage, quote(given.written, given), " must be one value");
  return given.value.text;
}

// By epoch unless the file or a flag says else. lr_strategy "no": nothing.
std::optional<bool> counts_epochs(GivenSettings* given, bool otherwise, std::optional<GivenSetting>* said) {
  auto strategy = take_pending(given, kOptions + "lr_strategy");
  auto by_epoch = take_pending(given, kOptions + "by_epoch");
  std::optional<bool> epochs;
  if (by_epoch) {
    epochs = parse_bool_text(scalar_of(*by_epoch));
    if (!epochs) throw_error(ExitCode::kUsage, quote(by_epoch->written, *by_epoch), " is not true or false");
    *said = by_epoch;
  }
  if (!strategy) return epochs.value_or(otherwise);
  std::string word = scalar_of(*strategy);
  if (word != "by_epoch" && word != "by_step" && word != "no")
    throw_error(ExitCode::kUsage, quote(strategy->written, *strategy), " is not one of by_epoch, by_step, no");
  if (epochs && *epochs != (word == "by_epoch"))
    throw_error(ExitCode::kUsage, quote(strategy->written, *strategy), " contradicts ", quote(by_epoch->written, *by_epoch), "; keep one");
  *said = strategy;
  if (word == "no") return std::nullopt;
  return word == "by_epoch";
}

// A warm-up of `length` periods. Epochs become their share of the run, since plait's warm-up counts updates.
void add_warmup_length(GivenSettings* given, const GivenSetting& length, bool by_epoch, std::vector<std::string>* notices) {
  auto periods = parse_integer_text(scalar_of(length));
  if (!periods || *periods < 0) throw_error(ExitCode::kUsage, quote(length.written, length), " is not a whole number, 0 or more");
  if (!by_epoch) return add_text(given, kNative + "warmup_steps", length, cat(*periods));
  const GivenSetting* run = given->find("train.max_epochs");
  auto epochs = parse_integer_text(run ? run->value.text : "5");
  if (!epochs || *epochs < 1 || given->has("train.max_steps"))
    throw_error(ExitCode::kUsage, quote(length.written, length),
                " counts epochs (by_epoch), and a run by max_steps has none to count; give options.by_epoch false and the updates");
  std::string ratio = cat(std::min(1.0, static_cast<double>(*periods) / static_cast<double>(*epochs)));
  add_text(given, kNative + "warmup_ratio", length, ratio);
  notices->push_back(cat(quote(length.written, length), " counts epochs (by_epoch): warmup_ratio ", ratio,
                         ", the same share of the run's updates; the rate rises in every update instead of once an epoch"));
}

void finish_warmup(GivenSettings* given, bool by_epoch, std::vector<std::string>* notices) {
  auto type = take_pending(given, kOptions + "warmup.type");
  auto iters = take_pending(given, kOptions + "warmup.warmup_iters");
  auto ratio = take_pending(given, kOptions + "warmup.warmup_ratio");
  if (!type && (iters || ratio)) {
    const GivenSetting& there = iters ? *iters : *ratio;
    throw_error(ExitCode::kUsage, quote(there.written, there),
                " needs the warm-up's type: LinearWarmup, ConstantWarmup or ExponentialWarmup");
  }
  if (!type) return;
  std::string word = scalar_of(*type);
  std::string kind = word == "LinearWarmup"        ? "linear"
                     : word == "ConstantWarmup"    ? "constant"
                     : word == "ExponentialWarmup" ? "exponential"
                                                   : "";
  if (kind.empty())
    throw_error(ExitCode::kUsage, quote(type->written, *type), " is not one of LinearWarmup, ConstantWarmup, ExponentialWarmup");
  if (!iters) throw_error(ExitCode::kUsage, quote(type->written, *type), " needs warmup_iters, the length of the warm-up");
  if (parse_integer_text(scalar_of(*iters)) == 0) return;  // none
  add_text(given, kNative + "warmup", *type, kind);
  add_text(given, kNative + "warmup_start_factor", ratio ? *ratio : *type, ratio ? scalar_of(*ratio) : "0.1");
  add_warmup_length(given, *iters, by_epoch, notices);
}

[[noreturn]] void unknown_class(const GivenSetting& type, const std::string& name) {
  if (name == "LambdaLR")
    throw_error(ExitCode::kUsage, quote(type.written, type), ": its function is Python code; the one of ModelScope's examples is noam");
  if (name == "ReduceLROnPlateau" || name == "OneCycleLR" || name == "CyclicLR" || name == "CosineAnnealingWarmRestarts" ||
      name == "SequentialLR" || name == "ChainedScheduler" || name == "MultiplicativeLR")
    throw_error(ExitCode::kUsage, quote(type.written, type), " is not available; one of ", join(class_names()));
  std::string near = nearest(name, class_names());
  throw_error(ExitCode::kUsage, quote(type.written, type), " is not one of ", join(class_names()), near.empty() ? "" : "; nearest: ", near);
}

// Parameters of the class that are pending, or torch's defaults.
std::map<std::string, GivenSetting> class_parameters(GivenSettings* given, const SchedulerClass& kind, const GivenSetting& type) {
  std::map<std::string, GivenSetting> out;
  for (const auto& parameter : kind.parameters) {
    auto found = take_pending(given, kScheduler + parameter.name);
    if (!found && !parameter.by_default) throw_error(ExitCode::kUsage, quote(type.written, type), " needs ", parameter.name);
    if (!found) {
      found = type;
      found->value = scalar_node(parameter.by_default, type.origin);
    }
    out[parameter.name] = *found;
  }
  take_pending(given, kScheduler + "verbose");
  auto last = take_pending(given, kScheduler + "last_epoch");
  if (last && scalar_of(*last) != "-1")
    throw_error(ExitCode::kUsage, quote(last->written, *last), ": a schedule starts with the run; nearest valid value -1");
  for (const auto& [name, setting] : given->all()) {
    if (name.rfind(kScheduler, 0) != 0) continue;
    std::vector<std::string> known;
    for (const auto& parameter : kind.parameters) known.push_back(parameter.name);
    throw_error(ExitCode::kUsage, quote(setting.written, setting), ": ", kind.name, " has no such argument; it has ", join(known));
  }
  return out;
}

// ConstantLR holds a share of the rate for total_iters periods, then the whole: that is a constant warm-up.
void finish_constant(GivenSettings* given, const std::map<std::string, GivenSetting>& parameters, const GivenSetting& type, bool by_epoch,
                     std::vector<std::string>* notices) {
  if (given->has(kOptions + "warmup.type"))
    throw_error(ExitCode::kUsage, quote(type.written, type), " is a warm-up itself and cannot have another one; keep one");
  add_text(given, kNative + "warmup", type, "constant");
  add_text(given, kNative + "warmup_start_factor", parameters.at("factor"), scalar_of(parameters.at("factor")));
  add_warmup_length(given, parameters.at("total_iters"), by_epoch, notices);
}

}  // namespace

void translate_loss_scale(FileTranslator* file, const Place& loss_scale) {
  if (!loss_scale) return;
  const std::string at = "train.loss_scale.";
  if (!loss_scale.is_map()) {
    if (file->text(loss_scale) == "dynamic") return file->become(loss_scale, at + "dynamic", "true");
    file->become(loss_scale, at + "init_scale");
    return file->become(loss_scale, at + "dynamic", "false");
  }
  for (const char* name : {"init_scale", "growth_factor", "backoff_factor", "growth_interval"})
    file->become(file->at(loss_scale, name), at + name);
  Place enabled = file->at(loss_scale, "enabled");
  if (enabled && !file->flag(enabled, true)) file->refuse(enabled, "float16 needs a loss scale; nearest valid value true");
}

void translate_optimizer_options(FileTranslator* file, const Place& options) {
  if (!options) return;
  file->become(file->at(options, "cumulative_iters"), "train.distributed.gradient_accumulation_steps");
  Place clip = file->at(options, "grad_clip");
  if (clip && !clip.is_map()) file->become(clip, "train.clip_grad");
  if (clip.is_map()) {
    file->become(file->at(clip, "max_norm"), "train.clip_grad");
    file->become(file->at(clip, "norm_type"), "train.norm_type");
    file->ignore(file->at(clip, "error_if_nonfinite"), "a gradient that is not finite ends the run (exit code 9), except with float16");
  }
  Place keys = file->at(options, "loss_keys");
  for (const Place& key : file->items(keys))
    if (file->text(key) != "loss") file->refuse(key, "a model of plait has one loss; nearest valid value loss");
  file->ignore(keys, "a model of plait has one loss");
  translate_loss_scale(file, file->at(options, "loss_scale"));
}

void translate_optimizer(FileTranslator* file, const Place& optimizer) {
  if (!optimizer) return;
  if (!optimizer.is_map()) return file->become(optimizer, "modelscope.optimizer");
  file->become(file->at(optimizer, "type"), "modelscope.optimizer");
  for (const char* name : {"lr", "weight_decay", "betas", "eps", "momentum", "nesterov"})
    file->become(file->at(optimizer, name), kParams + name);
  // DeepspeedHook's spellings.
  file->become(file->at(optimizer, "adam_beta1"), kParams + "beta1");
  file->become(file->at(optimizer, "adam_beta2"), kParams + "beta2");
  file->become(file->at(optimizer, "adam_epsilon"), kParams + "eps");
  file->only_off(file->at(optimizer, "dampening"), "SGD has momentum and nesterov only");
  file->only_off(file->at(optimizer, "amsgrad"), "this variant of Adam is not available");
  file->only_off(file->at(optimizer, "maximize"), "the loss is always made smaller");
  for (const char* name : {"foreach", "fused", "capturable", "differentiable"})
    file->ignore(file->at(optimizer, name), "plait has its own kernels");
  translate_optimizer_options(file, file->at(optimizer, "options"));
}

void translate_lr_options(FileTranslator* file, const Place& options) {
  if (!options) return;
  file->become(file->at(options, "lr_strategy"), kOptions + "lr_strategy");
  file->become(file->at(options, "by_epoch"), kOptions + "by_epoch");
  Place warmup = file->at(options, "warmup");
  if (!warmup) return;
  for (const char* name : {"type", "warmup_iters", "warmup_ratio"}) file->become(file->at(warmup, name), cat(kOptions, "warmup.", name));
}

void translate_lr_scheduler(FileTranslator* file, const Place& scheduler) {
  if (!scheduler) return;
  if (!scheduler.is_map()) return file->become(scheduler, kScheduler + "type");
  for (const Place& entry : file->entries(scheduler)) {
    std::string key = entry.path.substr(scheduler.path.size() + 1);
    if (key != "options" && key != "by_epoch" && !entry.node->is_null()) file->become(entry, kScheduler + key);
  }
  file->become(file->at(scheduler, "by_epoch"), kOptions + "by_epoch");
  translate_lr_options(file, file->at(scheduler, "options"));
}

void finish_optimizer(GivenSettings* given, bool is_form) {
  auto type = take_pending(given, "modelscope.optimizer");
  const GivenSetting* native = given->find("train.optimizer.type");
  if (type && native && native->command_line == type->command_line)
    throw_error(ExitCode::kUsage, "two optimizers: ", quote(type->written, *type), " and ", quote(native->written, *native), "; keep one");
  bool is_native = native && (!type || native->command_line);
  std::string word = is_native ? native->value.text : type ? scalar_of(*type) : "AdamW";
  const GivenSetting* decay = given->find(kParams + "weight_decay");
  auto kind = parse_enum_word<OptimizerKind>(word);
  if (!kind && type && !is_native)
    throw_error(ExitCode::kUsage, quote(type->written, *type), " is not available; ",
                rule_of_words(word, enum_choices<OptimizerKind>(), "AdamW"));
  if (type && !is_native) put_setting(given, "train.optimizer.type", *type, enum_word(*kind));
  // torch's default decay is 0.01 for AdamW, 0 for the others.
  if (is_form && !decay && word != "AdamW" && word != "adamw")
    given->add(kParams + "weight_decay", {scalar_node("0", "torch's default"), "weight_decay", "torch's default", false});
}

void finish_lr_scheduler(GivenSettings* given, bool is_form, std::vector<std::string>* notices) {
  auto type = take_pending(given, kScheduler + "type");
  const GivenSetting* native = given->find(kNative + "type");
  if (type && native && native->command_line == type->command_line)
    throw_error(ExitCode::kUsage, "two schedules of the learning rate: ", quote(type->written, *type), " and ",
                quote(native->written, *native), "; keep one");
  std::optional<GivenSetting> said;
  if (native && (!type || native->command_line)) {
    if (type) notices->push_back(cat(quote(type->written, *type), " is replaced by ", quote(native->written, *native)));
    std::vector<std::string> dropped;
    for (const auto& [name, setting] : given->all())
      if (name.rfind(kScheduler, 0) == 0) dropped.push_back(name);
    for (const auto& name : dropped) given->erase(name);
    auto epochs = counts_epochs(given, false, &said);
    if (said && epochs.value_or(false) && !given->has(kNative + "by_epoch")) add_text(given, kNative + "by_epoch", *said, "true");
    return finish_warmup(given, epochs.value_or(false), notices);
  }
  bool mentioned = false;
  for (const auto& [name, setting] : given->all()) mentioned |= name.rfind("modelscope.lr_", 0) == 0;
  if (!type && !mentioned && !is_form) return;
  if (!type) type = GivenSetting{scalar_node("LinearLR", "ModelScope's default"), "lr_scheduler", "ModelScope's default", false};
  std::string name = scalar_of(*type);
  const auto& classes = scheduler_classes();
  auto kind = std::find_if(classes.begin(), classes.end(), [&](const SchedulerClass& one) { return name == one.name; });
  if (kind == classes.end()) unknown_class(*type, name);
  auto parameters = class_parameters(given, *kind, *type);
  auto epochs = counts_epochs(given, name != "noam", &said);
  if (!epochs) {
    add_text(given, kNative + "type", *said, "constant");
    notices->push_back(cat(quote(said->written, *said), ": the learning rate stays as it is, ", name, " has no effect"));
    return finish_warmup(given, false, notices);
  }
  add_text(given, kNative + "type", *type, kind->type);
  if (std::string(kind->type) == "constant") finish_constant(given, parameters, *type, *epochs, notices);
  for (const auto& parameter : kind->parameters)
    if (*parameter.setting) add_below_flags(given, kNative + parameter.setting, parameters.at(parameter.name));
  if (name == "noam" && *epochs)
    throw_error(ExitCode::kUsage, quote(said->written, *said), ": noam counts updates; nearest valid value by_step");
  if (name == "noam" && given->has(kOptions + "warmup.type"))
    throw_error(ExitCode::kUsage, quote(type->written, *type), " has its own warm-up and cannot have another one; keep one");
  bool has_periods = std::string(kind->type) != "constant" && name != "noam";
  if (has_periods) add_text(given, kNative + "by_epoch", said ? *said : *type, *epochs ? "true" : "false");
  finish_warmup(given, *epochs, notices);
}

std::optional<GivenSetting> take_pending(GivenSettings* given, const std::string& name) {
  const GivenSetting* found = given->find(name);
  std::optional<GivenSetting> out;
  if (found) out = *found;
  given->erase(name);
  return out;
}

void put_setting(GivenSettings* given, const std::string& name, GivenSetting from, const std::string& text) {
  from.value = scalar_node(text, from.origin);
  given->erase(name);
  given->add(name, std::move(from));
}

}  // namespace plait::detail
