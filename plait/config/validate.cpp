#include "plait/config/validate.h"

#include <set>
#include <type_traits>

#include "plait/base/error.h"
#include "plait/config/describe.h"
#include "plait/config/enum_names.h"
#include "plait/config/validate_train.h"

namespace plait {

namespace {

template <class... Pieces>
[[noreturn]] void refuse(const Pieces&... pieces) {
  throw_error(ExitCode::kUsage, pieces...);
}

struct CheckRanges {
  const Config& config;

  // Number: as the setting has it, so that a whole number is shown as one.
  template <class Number>
  void check(const SettingInfo& info, Number value) const {
    const auto real = static_cast<double>(value);
    if (!std::isnan(real) && info.range.holds(real)) return;
    auto near = info.range.nearest_valid(real);
    std::string range = info.range.text();
    bool interval = range.starts_with('[') || range.starts_with('(');
    refuse(info.name, " ", value, config.where(info.name), interval ? " is not in " : " is not ", range,
           near ? cat("; nearest valid value ", static_cast<Number>(*near)) : "");
  }

  void operator()(const SettingInfo& info, int64_t value) const { check(info, value); }
  void operator()(const SettingInfo& info, double value) const { check(info, value); }
  void operator()(const SettingInfo& info, const std::optional<double>& value) const {
    if (value) check(info, *value);
  }
  void operator()(const SettingInfo& info, const std::vector<int64_t>& values) const {
    for (int64_t value : values) check(info, value);
  }
  void operator()(const SettingInfo& info, const std::string& value) const {
    if (info.words.empty()) return;
    for (const auto& word : info.words)
      if (word == value) return;
    refuse(info.name, " ", value, config.where(info.name), " is not ", rule_of_words(value, info.words, info.words.front()));
  }
  void operator()(const SettingInfo&, bool) const {}
  template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
  void operator()(const SettingInfo&, E) const {}
  void operator()(const SettingInfo&, const std::vector<std::string>&) const {}
  void operator()(const SettingInfo&, const std::vector<Metric>&) const {}
};

void check_pipeline(const Config& config) {
  const auto& d = config.train.distributed;
  const std::string at = "train.distributed.";
  auto stages_are = [&](auto... rule) {
    refuse(at, "virtual_pipeline_size ", d.virtual_pipeline_size, config.where(at + "virtual_pipeline_size"), rule...);
  };
  const bool interleaved = d.schedule == ScheduleKind::kInterleaved1F1B, custom = d.schedule == ScheduleKind::kCustom;
  const bool v_shaped = d.schedule == ScheduleKind::kZeroBubbleV, automatic = d.schedule == ScheduleKind::kAuto;
  const std::string schedule = cat(enum_word(d.schedule), config.where(at + "schedule"));
  if (d.virtual_pipeline_size > 1 && v_shaped && d.virtual_pipeline_size != 2)
    stages_are(": schedule ", schedule, " has 2 stages a rank; nearest valid value 2");
  if (d.virtual_pipeline_size > 1 && automatic) stages_are(": schedule ", schedule, " chooses it; leave it out");
  if (d.virtual_pipeline_size > 1 && !interleaved && !v_shaped && !custom) stages_are(" needs schedule interleaved_1f1b, not ", schedule);
  if (interleaved && d.virtual_pipeline_size < 2 && d.pipeline_parallel_size > 1)
    refuse(at, "schedule ", schedule, " needs virtual_pipeline_size of at least 2, it is ", d.virtual_pipeline_size,
           config.where(at + "virtual_pipeline_size"));
  if (custom && d.schedule_file.empty()) refuse(at, "schedule ", schedule, " needs ", at, "schedule_file, a schedule in the text form");
  if (!custom && !d.schedule_file.empty())
    refuse(at, "schedule_file ", d.schedule_file, config.where(at + "schedule_file"), " has no effect with schedule ", schedule,
           "; say schedule custom, or leave it out");
  if (!automatic && d.pipeline_memory_bytes > 0)
    refuse(at, "pipeline_memory_bytes ", d.pipeline_memory_bytes, config.where(at + "pipeline_memory_bytes"),
           " has no effect with schedule ", schedule, "; say schedule auto, or leave it out");
  if (custom || automatic) return;  // how many stages a rank has is known later
  int64_t chunks = v_shaped && d.pipeline_parallel_size > 1 ? 2 : d.virtual_pipeline_size;
  int64_t stages = d.pipeline_parallel_size * chunks;
  if (!d.pipeline_layers.empty() && static_cast<int64_t>(d.pipeline_layers.size()) != stages)
    refuse(at, "pipeline_layers [", join(d.pipeline_layers), "]", config.where(at + "pipeline_layers"), " lists ", d.pipeline_layers.size(),
           " stages; pipeline_parallel_size ", d.pipeline_parallel_size, " x virtual_pipeline_size ", chunks, " needs ", stages);
}

void check_layout(const Config& config) {
  const auto& d = config.train.distributed;
  const std::string at = "train.distributed.";
  if (d.zero_stage != 0)
    refuse(at, "zero_stage ", d.zero_stage, config.where(at + "zero_stage"),
           ": sharded optimizer states are not available yet; nearest valid value 0");
  check_pipeline(config);
  int64_t product = config.train.per_device_train_batch_size * d.data_parallel_size * d.gradient_accumulation_steps;
  if (config.train.batch_size != product)
    refuse("train.batch_size ", config.train.batch_size, config.where("train.batch_size"), " is not per_device_train_batch_size ",
           config.train.per_device_train_batch_size, " x data_parallel_size ", d.data_parallel_size, " x gradient_accumulation_steps ",
           d.gradient_accumulation_steps, " = ", product);
}

void check_optimizer(const Config& config) {
  const auto& o = config.train.optimizer;
  const OptimizerConfig defaults;
  const std::string at = "train.optimizer.params.";
  auto no_effect = [&](const char* name, bool differs) {
    if (differs)
      refuse(at, name, config.where(at + name), " has no effect with optimizer ", enum_word(o.type), config.where("train.optimizer.type"),
             "; leave it out");
  };
  if (o.type != OptimizerKind::kSGD) {
    no_effect("momentum", o.momentum != 0);
    no_effect("nesterov", o.nesterov);
  } else {
    no_effect("beta1", o.beta1 != defaults.beta1);
    no_effect("beta2", o.beta2 != defaults.beta2);
    no_effect("eps", o.eps != defaults.eps);
    if (o.nesterov && o.momentum == 0) refuse(at, "nesterov true", config.where(at + "nesterov"), " needs a momentum above 0");
  }
}

// The column of second texts: a wish that one of the two files forgets would change what is learnt, unseen.
void check_text_pairs(const Config& config) {
  const DataFileConfig &train = config.dataset.train, &valid = config.dataset.valid;
  const std::string train_pair = "dataset.train.text_pair_col", valid_pair = "dataset.valid.text_pair_col";
  for (const auto* file : {&train, &valid}) {
    if (file->text_pair_col.empty()) continue;
    const std::string& setting = file == &train ? train_pair : valid_pair;
    if (config.task == Task::kTextGeneration)
      refuse(setting, " ", file->text_pair_col, config.where(setting), " has no meaning for task text-generation; leave it out");
    if (file->text_pair_col == file->text_col)
      refuse(setting, " ", file->text_pair_col, config.where(setting), " is the column of the first text too; name the other column");
  }
  if (train.file.empty() || valid.file.empty() || train.text_pair_col.empty() == valid.text_pair_col.empty()) return;
  bool in_train = valid.text_pair_col.empty();
  const std::string& given = in_train ? train_pair : valid_pair;
  refuse(given, " ", in_train ? train.text_pair_col : valid.text_pair_col, config.where(given), " makes rows of two texts, but ",
         in_train ? valid_pair : train_pair, " is not given: training and validation rows must be alike, give both");
}

// What `auto` becomes depends on the machine; the rest is known here.
void check_backend(const Config& config) {
  const std::string &wish = config.train.comm.backend, &device = config.train.device;
  bool on_cpu = device == "cpu" && wish == "nccl", on_cuda = device == "cuda" && (wish == "shm" || wish == "gloo" || wish == "mpi");
  if (on_cpu || on_cuda)
    refuse("train.comm.backend ", wish, config.where("train.comm.backend"), " does not carry tensors of device ", device,
           config.where("train.device"), "; nearest valid value ", on_cuda ? "nccl" : "auto");
}

void check_rest(const Config& config) {
  const auto& t = config.train;
  if (t.norm_type != 2.0 && t.norm_type != INFINITY)
    refuse("train.norm_type ", t.norm_type, config.where("train.norm_type"), " is not 2 or inf; nearest valid value ",
           t.norm_type < 1e3 ? "2" : "inf");
  std::set<std::string> seen;
  for (const auto& label : config.dataset.labels)
    if (!seen.insert(label).second) refuse("dataset.labels", config.where("dataset.labels"), " names ", label, " twice");
  std::set<Metric> metrics;
  for (Metric metric : config.evaluation.metrics) {
    if (!metrics.insert(metric).second)
      refuse("evaluation.metrics", config.where("evaluation.metrics"), " names ", enum_word(metric), " twice");
    bool of_classes = metric == Metric::kAccuracy || metric == Metric::kF1;
    if (config.task == Task::kTextGeneration && of_classes)
      refuse("evaluation.metrics ", enum_word(metric), config.where("evaluation.metrics"),
             " needs task text-classification; text-generation has loss and perplexity");
    if (config.task == Task::kTextClassification && metric == Metric::kPerplexity)
      refuse("evaluation.metrics perplexity", config.where("evaluation.metrics"),
             " needs task text-generation; text-classification has accuracy, f1 and loss");
  }
  const auto& p = config.preprocessor;
  if (p.pad_to > 0 && p.sequence_length > 0 && p.pad_to < p.sequence_length)
    refuse("preprocessor.pad_to ", p.pad_to, config.where("preprocessor.pad_to"), " is shorter than sequence_length ", p.sequence_length,
           config.where("preprocessor.sequence_length"), "; nearest valid value ", p.sequence_length);
  if (config.task == Task::kTextGeneration && !config.dataset.labels.empty())
    refuse("dataset.labels", config.where("dataset.labels"), " has no meaning for task text-generation; leave it out");
}

}  // namespace

void check_ranges(const Config& config) { describe(CheckRanges{config}, config); }

void validate(const Config& config) {
  check_ranges(config);
  check_layout(config);
  check_optimizer(config);
  check_lr_scheduler(config);
  check_loss_scale(config);
  check_run_outputs(config);
  check_compression(config);
  check_backend(config);
  check_text_pairs(config);
  check_rest(config);
}

void report_no_effect(const Config& config, std::vector<std::string>* notices) {
  const auto& t = config.train;
  const auto& d = t.distributed;
  const std::string sizes = "train.distributed.", warmup = "train.lr_scheduler.warmup_steps";
  if (t.max_steps > 0 && t.lr_scheduler.warmup_steps > t.max_steps)
    notices->push_back(cat(warmup, " ", t.lr_scheduler.warmup_steps, config.where(warmup), " is more than max_steps ", t.max_steps,
                           config.where("train.max_steps"), ": the learning rate never reaches lr ", t.optimizer.lr));
  if (d.sequence_parallel && d.model_parallel_size == 1)
    notices->push_back(
        cat(sizes, "sequence_parallel true", config.where(sizes + "sequence_parallel"), " has no effect with model_parallel_size 1"));
  report_messages_without_effect(config, notices);
  // interleaved_1f1b is refused there.
  bool for_pipelines =
      d.schedule != ScheduleKind::kGPipe && d.schedule != ScheduleKind::k1F1B && d.schedule != ScheduleKind::kInterleaved1F1B;
  if (for_pipelines && d.pipeline_parallel_size == 1)
    notices->push_back(
        cat(sizes, "schedule ", enum_word(d.schedule), config.where(sizes + "schedule"), " has no effect with pipeline_parallel_size 1"));
}

void require_training_settings(const Config& config) {
  if (config.model.path.empty()) refuse("no model given: model.path in the settings file, or --model FOLDER");
  if (config.dataset.train.file.empty()) refuse("no training data given: dataset.train.file in the settings file, or --train_file FILE");
  if (config.train.early_stop.patience > 0 && config.dataset.valid.file.empty())
    refuse("train.early_stop.patience ", config.train.early_stop.patience, config.where("train.early_stop.patience"),
           " needs validation data: dataset.valid.file in the settings file, or --valid_file FILE");
}

}  // namespace plait
