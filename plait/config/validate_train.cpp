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
  const bool traces = !t.profile.trace_file.empty();
  const ProfileConfig profile;
  no_effect("train.profile.first_step", !traces && t.profile.first_step != profile.first_step,
            "without train.profile.trace_file: name the file");
  no_effect("train.profile.num_steps", !traces && t.profile.num_steps != profile.num_steps,
            "without train.profile.trace_file: name the file");
}

namespace {

const std::string kCompression = "train.comm.compression.", kPriority = "train.comm.priority.";

// A border must become narrower, or stay as it is; between the two 16-bit types it would only lose.
void check_border_compression(const Config& config) {
  const BorderCompression wish = config.train.comm.compression.pipeline;
  const DType dtype = config.train.dtype;
  bool swaps = (wish == BorderCompression::kBFloat16 && dtype == DType::kFloat16) ||
               (wish == BorderCompression::kFloat16 && dtype == DType::kBFloat16);
  if (swaps)
    refuse(kCompression, "pipeline ", enum_word(wish), config.where(kCompression + "pipeline"), " with dtype ", enum_word(dtype),
           config.where("train.dtype"), " would lose numbers and save no byte; nearest valid value fp8");
}

}  // namespace

void check_compression(const Config& config) {
  using G = GradientCompression;
  const CommCompressionConfig &c = config.train.comm.compression, defaults;
  auto no_effect = [&](const char* name, bool differs, const std::string& remedy) {
    if (differs)
      refuse(kCompression, name, config.where(kCompression + name), " has no effect with algorithm ", enum_word(c.algorithm),
             config.where(kCompression + "algorithm"), "; ", remedy, ", or leave it out");
  };
  no_effect("rank", c.rank != defaults.rank && c.algorithm != G::kPowerSGD, "it belongs to powersgd");
  no_effect("ratio", c.ratio != defaults.ratio && c.algorithm != G::kTopK, "it belongs to topk");
  no_effect("threshold_bytes", c.threshold_bytes != defaults.threshold_bytes && c.algorithm == G::kNone,
            cat("name an algorithm: ", join(enum_choices<G>())));
  // Values and positions, 8 bytes each, to every other rank, against 4 bytes an element there and back.
  const int64_t ranks = config.train.distributed.data_parallel_size;
  const double largest = 1.0 / static_cast<double>(ranks);
  if (c.algorithm == G::kTopK && ranks > 1 && c.ratio >= largest)
    refuse(kCompression, "ratio ", c.ratio, config.where(kCompression + "ratio"), " on ", ranks,
           " data ranks sends more than the gradients have; it must be below 1 / data_parallel_size = ", largest, "; nearest valid value ",
           largest * 0.99);
  if (c.algorithm == G::kNccl && config.train.comm.priority.data_parallel == CommStyle::kP2P)
    refuse(kCompression, "algorithm nccl", config.where(kCompression + "algorithm"), " is the library's collective, and ", kPriority,
           "data_parallel is p2p", config.where(kPriority + "data_parallel"), "; nearest valid value bf16, or data_parallel collective");
  check_border_compression(config);
}

void report_messages_without_effect(const Config& config, std::vector<std::string>* notices) {
  const CommConfig& comm = config.train.comm;
  const DistributedConfig& d = config.train.distributed;
  auto say = [&](const std::string& setting, const char* word, const std::string& why) {
    notices->push_back(cat(setting, " ", word, config.where(setting), " has no effect with ", why));
  };
  const CommCompressionConfig& c = comm.compression;
  if (c.algorithm != GradientCompression::kNone && d.data_parallel_size == 1)
    say(kCompression + "algorithm", enum_word(c.algorithm).c_str(), "data_parallel_size 1");
  if (c.algorithm != GradientCompression::kNone && d.data_parallel_size > 1 && c.threshold_bytes > d.bucket_size_bytes)
    notices->push_back(cat(kCompression, "threshold_bytes ", c.threshold_bytes, config.where(kCompression + "threshold_bytes"),
                           " is more than bucket_size_bytes ", d.bucket_size_bytes, config.where("train.distributed.bucket_size_bytes"),
                           ": only parameters larger than a bucket are compressed"));
  if (c.pipeline != BorderCompression::kNone && d.pipeline_parallel_size == 1)
    say(kCompression + "pipeline", enum_word(c.pipeline).c_str(), "pipeline_parallel_size 1");
  bool is_same = (c.pipeline == BorderCompression::kBFloat16 && config.train.dtype == DType::kBFloat16) ||
                 (c.pipeline == BorderCompression::kFloat16 && config.train.dtype == DType::kFloat16);
  if (is_same && d.pipeline_parallel_size > 1)
    say(kCompression + "pipeline", enum_word(c.pipeline).c_str(),
        cat("dtype ", enum_word(config.train.dtype), ": borders are of that type"));
  if (comm.priority.data_parallel == CommStyle::kP2P && d.data_parallel_size == 1)
    say(kPriority + "data_parallel", "p2p", "data_parallel_size 1");
  if (comm.priority.tensor_parallel == CommStyle::kP2P && d.model_parallel_size == 1)
    say(kPriority + "tensor_parallel", "p2p", "model_parallel_size 1");
  const std::string sizes = "train.distributed.";
  if (!d.overlap_grad_reduce && d.data_parallel_size == 1) say(sizes + "overlap_grad_reduce", "false", "data_parallel_size 1");
  if (!d.overlap_tensor_comm && d.model_parallel_size == 1) say(sizes + "overlap_tensor_comm", "false", "model_parallel_size 1");
  if (!d.overlap_pipeline_comm && d.pipeline_parallel_size == 1) say(sizes + "overlap_pipeline_comm", "false", "pipeline_parallel_size 1");
  if (config.train.dtype != DType::kFloat16)
    for (const char* name : {"dynamic", "init_scale", "growth_factor", "backoff_factor", "growth_interval"})
      if (const std::string scale = cat("train.loss_scale.", name); config.origin.count(scale))
        notices->push_back(cat(scale, config.where(scale), " has no effect with dtype ", enum_word(config.train.dtype)));
}

}  // namespace plait
