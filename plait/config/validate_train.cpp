#include "plait/config/validate_train.h"

#include "plait/base/error.h"
#include "plait/config/enum_names.h"

namespace plait {

namespace {

template <class... Pieces>
[[noreturn]] void refuse(const Pieces&... pieces) {
  throw_error(ExitCode::kUsage, pieces...);
}

const std::string kSchedule = "train.lr_scheduler.";

bool is_one_of(LrSchedulerKind type, std::initializer_list<LrSchedulerKind> kinds) {
  for (LrSchedulerKind kind : kinds)
    if (kind == type) return true;
  return false;
}

// What each kind of schedule reads.
void check_kind(const Config& config) {
  using K = LrSchedulerKind;
  const LrSchedulerConfig& s = config.train.lr_scheduler;
  const LrSchedulerConfig defaults;
  auto only_of = [&](const char* name, bool differs, std::initializer_list<K> kinds) {
    if (!differs || is_one_of(s.type, kinds)) return;
    std::vector<std::string> words;
    for (K kind : kinds) words.push_back(enum_word(kind));
    refuse(kSchedule, name, config.where(kSchedule + name), " has no effect with type ", enum_word(s.type),
           config.where(kSchedule + "type"), "; it belongs to ", join(words), "; leave it out");
  };
  only_of("step_size", s.step_size != defaults.step_size, {K::kStep});
  only_of("milestones", !s.milestones.empty(), {K::kMultiStep});
  only_of("gamma", s.gamma != defaults.gamma, {K::kStep, K::kMultiStep, K::kExponential});
  only_of("power", s.power != defaults.power, {K::kPolynomial});
  only_of("start_factor", s.start_factor != defaults.start_factor, {K::kRamp});
  only_of("end_factor", s.end_factor != defaults.end_factor, {K::kRamp});
  only_of("total_periods", s.total_periods != 0, {K::kLinear, K::kCosine, K::kPolynomial, K::kRamp});
  only_of("min_lr", s.min_lr != 0, {K::kCosine, K::kPolynomial});
  only_of("by_epoch", s.by_epoch, {K::kLinear, K::kCosine, K::kStep, K::kMultiStep, K::kExponential, K::kPolynomial, K::kRamp});
  if (s.type == K::kMultiStep && s.milestones.empty())
    refuse(kSchedule, "type multi_step", config.where(kSchedule + "type"), " needs ", kSchedule,
           "milestones: where the learning rate drops");
  if (s.min_lr > config.train.optimizer.lr)
    refuse(kSchedule, "min_lr ", s.min_lr, config.where(kSchedule + "min_lr"), " is above the learning rate ", config.train.optimizer.lr,
           config.where("train.optimizer.params.lr"), "; nearest valid value ", config.train.optimizer.lr);
}

void check_warmup(const Config& config) {
  const LrSchedulerConfig& s = config.train.lr_scheduler;
  const LrSchedulerConfig defaults;
  if (s.warmup_steps > 0 && s.warmup_ratio > 0)
    refuse(kSchedule, "warmup_steps ", s.warmup_steps, config.where(kSchedule + "warmup_steps"), " and warmup_ratio ", s.warmup_ratio,
           config.where(kSchedule + "warmup_ratio"), " both say how long the warm-up is; keep one");
  bool any = s.warmup_steps > 0 || s.warmup_ratio > 0;
  auto no_effect = [&](const char* name, bool differs) {
    if (!differs) return;
    if (s.type == LrSchedulerKind::kInverseSqrt)
      refuse(kSchedule, name, config.where(kSchedule + name), " has no effect with type inverse_sqrt", config.where(kSchedule + "type"),
             ", whose formula has its own warm-up; leave it out");
    if (!any)
      refuse(kSchedule, name, config.where(kSchedule + name), " has no effect without a warm-up; give warmup_steps or leave it out");
  };
  no_effect("warmup", s.warmup != defaults.warmup);
  no_effect("warmup_start_factor", s.warmup_start_factor != defaults.warmup_start_factor);
  if (any && s.warmup != WarmupKind::kLinear && s.warmup_start_factor == 0)
    refuse(kSchedule, "warmup ", enum_word(s.warmup), config.where(kSchedule + "warmup"), " with warmup_start_factor 0",
           config.where(kSchedule + "warmup_start_factor"),
           " would train with learning rate 0 throughout the warm-up; give one above 0, such as 0.1");
}

}  // namespace

void check_lr_scheduler(const Config& config) {
  check_kind(config);
  check_warmup(config);
}

void check_loss_scale(const Config& config) {
  const LossScaleConfig& s = config.train.loss_scale;
  const LossScaleConfig defaults;
  const std::string at = "train.loss_scale.";
  if (s.dynamic) return;
  auto no_effect = [&](const char* name, bool differs) {
    if (differs)
      refuse(at, name, config.where(at + name), " has no effect with dynamic false", config.where(at + "dynamic"), "; leave it out");
  };
  no_effect("growth_factor", s.growth_factor != defaults.growth_factor);
  no_effect("backoff_factor", s.backoff_factor != defaults.backoff_factor);
  no_effect("growth_interval", s.growth_interval != defaults.growth_interval);
}

void check_run_outputs(const Config& config) {
  const TrainConfig& t = config.train;
  auto no_effect = [&](const std::string& name, bool differs, const char* remedy) {
    if (differs) refuse(name, config.where(name), " has no effect ", remedy, ", or leave it out");
  };
  if (t.work_dir.empty()) refuse("train.work_dir", config.where("train.work_dir"), " is empty; name the folder that the run writes into");
  if (t.early_stop.patience > 0 && config.evaluation.strategy == EvalStrategy::kNo)
    refuse("train.early_stop.patience ", t.early_stop.patience, config.where("train.early_stop.patience"),
           " needs evaluations, and evaluation.period.eval_strategy is no", config.where("evaluation.period.eval_strategy"),
           "; nearest valid value epoch");
  no_effect("train.early_stop.min_delta", t.early_stop.patience == 0 && t.early_stop.min_delta != 0,
            "without train.early_stop.patience: give it");
  bool saves = t.save.strategy != SaveStrategy::kNo;
  no_effect("train.save.interval", !saves && t.save.interval != 1, "with train.save.strategy no: say epoch or steps");
  no_effect("train.save.keep", !saves && t.save.keep != 0, "with train.save.strategy no: say epoch or steps");
  no_effect("train.tensorboard.interval", t.tensorboard.dir.empty() && t.tensorboard.interval != 1,
            "without train.tensorboard.dir: name a folder");
}

}  // namespace plait
