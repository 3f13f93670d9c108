#include "plait/config/load_config.h"

#include <filesystem>

#include "plait/base/error.h"
#include "plait/config/apply_settings.h"
#include "plait/config/deepspeed.h"
#include "plait/config/given_settings.h"
#include "plait/config/hugging_face.h"
#include "plait/config/layers.h"
#include "plait/config/modelscope.h"
#include "plait/config/read_settings.h"
#include "plait/config/resolve.h"
#include "plait/config/scalar.h"
#include "plait/config/settings_trace.h"
#include "plait/config/validate.h"

namespace plait {

namespace {

const std::string kData = "train.distributed.data_parallel_size", kModel = "train.distributed.model_parallel_size",
                  kPipeline = "train.distributed.pipeline_parallel_size", kStrategy = "train.distributed.distributed_strategy";
const std::string kBatch = "train.batch_size", kPerDevice = "train.per_device_train_batch_size",
                  kAccumulation = "train.distributed.gradient_accumulation_steps";

Config defaults_of(SettingsForm form) {
  Config config;
  if (form == SettingsForm::kHuggingFace) set_hugging_face_defaults(&config);
  if (form == SettingsForm::kModelScope) set_modelscope_defaults(&config);
  if (form == SettingsForm::kDeepSpeed) set_deepspeed_defaults(&config);
  return config;
}

// ModelScope has no size of the data axis and counts rows per device: both are said aloud.
void report_modelscope_sizes(const Config& config, const GivenSettings& merged, std::vector<std::string>* notices) {
  const auto& d = config.train.distributed;
  int64_t world = d.data_parallel_size * d.model_parallel_size * d.pipeline_parallel_size;
  if (!merged.has(kData) && world > 1)
    notices->push_back(cat("data_parallel_size ", d.data_parallel_size, " = world_size ", world, " / (tensor_model_parallel_size ",
                           d.model_parallel_size, config.where(kModel), " x pipeline_model_parallel_size ", d.pipeline_parallel_size,
                           config.where(kPipeline), ")"));
  const auto& t = config.train;
  bool by_step = t.save.strategy == SaveStrategy::kSteps || config.evaluation.strategy == EvalStrategy::kSteps || !t.lr_scheduler.by_epoch;
  if (d.gradient_accumulation_steps > 1 && by_step)
    notices->push_back(cat("gradient_accumulation_steps ", d.gradient_accumulation_steps, config.where(kAccumulation),
                           ": intervals, warm-ups and schedules by step count updates here, and micro-batches in ModelScope"));
  const GivenSetting* rows = merged.find(kPerDevice);
  notices->push_back(cat(
      rows ? quote(rows->written, *rows) : cat("batch_size_per_gpu ", config.train.per_device_train_batch_size, " (ModelScope's default)"),
      " is per device: batch_size ", config.train.batch_size, " = ", config.train.per_device_train_batch_size, " x data_parallel_size ",
      d.data_parallel_size, " x gradient_accumulation_steps ", d.gradient_accumulation_steps));
}

Config assemble(GivenSettings file, const GivenSettings& command, int64_t world_size, SettingsTrace* trace) {
  auto* notices = &trace->notices;
  bool is_hugging_face = trace->form == SettingsForm::kHuggingFace, is_modelscope = trace->form == SettingsForm::kModelScope;
  Config config = trace->defaults;
  config.source = trace->source;
  std::string folder = std::filesystem::path(trace->source).parent_path().string();
  ReplacedLayout old = replace_layout(&file, command);
  merge_layers(&file, command);
  if (is_modelscope) adopt_shared_names(&file);
  finish_hugging_face(&file, is_hugging_face, notices);
  finish_modelscope(&file, is_modelscope, trace->source, &trace->notes, notices);
  finish_deepspeed(&file, notices);
  std::string world_name = file.has("modelscope.world_size") ? file.find("modelscope.world_size")->written : "";
  int64_t wanted_world = take_modelscope_world(&file, world_size);
  if (world_size == 0) world_size = wanted_world;
  trace->merged = file;
  if (const GivenSetting* strategy = file.find(kStrategy)) config.origin[kStrategy] = strategy->origin;
  Config layout = config;  // sizes first: which stage settings hold depends on them
  std::vector<std::string> ignored;
  apply_settings(file, folder, &layout, &ignored);
  check_ranges(layout);
  GivenSizes sizes{file.has(kData), file.has(kModel), file.has(kPipeline)};
  resolve_layout(&layout, sizes, given_word(file, kStrategy), world_size);
  if (old.replaced) {
    restore_stages(old, &file, layout.train.distributed.pipeline_parallel_size, notices);
    report_replaced(old, file, layout, world_size, notices);
    trace->merged = file;
  }
  apply_settings(file, folder, &config, notices);
  check_ranges(config);
  resolve_layout(&config, sizes, given_word(file, kStrategy), world_size);
  if (!world_name.empty())
    trace->notes.derived[world_name] =
        cat("data_parallel_size = ", config.train.distributed.data_parallel_size, ", what the other sizes leave");
  GivenBatch batch{file.has(kBatch), file.has(kPerDevice), file.has(kAccumulation)};
  // Hugging Face's and ModelScope's own defaults are 8 and 16 rows a device and no accumulation, also for a pipeline.
  if ((is_hugging_face || is_modelscope) && !batch.batch_size) batch.per_device = true;
  resolve_batch(&config, batch, trace->defaults.train.per_device_train_batch_size);
  if (is_modelscope) report_modelscope_sizes(config, file, notices);
  validate(config);
  report_no_effect(config, notices);
  trace->config = config;
  return config;
}

Config load_traced(const std::string& text, const std::string& origin_name, const CommandLine& command_line, int64_t world_size,
                   SettingsTrace* trace) {
  trace->source = origin_name;
  if (std::filesystem::path(origin_name).extension() == ".py")
    throw_error(ExitCode::kUsage, "settings file ", origin_name,
                " is a Python program, which is never run; write the same names as JSON or YAML");
  SettingNames names;
  trace->tree = parse_settings(text, origin_name);
  trace->form = form_of_settings(trace->tree);
  trace->form_known = true;
  trace->defaults = defaults_of(trace->form);
  read_file_settings(trace->tree, trace->form, origin_name, names, &trace->file, &trace->notes, &trace->notices);
  return assemble(trace->file, read_command_line(command_line, names), world_size, trace);
}

// `--use_model_config true`: configuration.json of the model folder is the settings file.
std::string model_own_config(const GivenSettings& command) {
  const GivenSetting* wish = command.find("modelscope.use_model_config");
  if (!wish) return "";
  auto on = wish->value.kind == SettingNode::Kind::kScalar ? parse_bool_text(wish->value.text) : std::nullopt;
  if (!on) throw_error(ExitCode::kUsage, quote(wish->written, *wish), " is not true or false");
  std::string folder = given_word(command, "model.path");
  std::error_code problem;
  if (!*on || folder.empty() || !std::filesystem::is_directory(folder, problem)) return "";  // no folder: the model's own message follows
  std::string path = folder + "/configuration.json";
  if (!std::filesystem::exists(path, problem))
    throw_error(ExitCode::kCheckpoint, quote(wish->written, *wish), ": model folder ", folder, " holds no configuration.json");
  return path;
}

}  // namespace

Config config_from_text(const std::string& text, const std::string& origin_name, const CommandLine& command_line, int64_t world_size,
                        std::vector<std::string>* notices, SettingsTrace* trace) {
  SettingsTrace own;
  if (!trace) trace = &own;
  Config config = load_traced(text, origin_name, command_line, world_size, trace);
  if (notices) notices->insert(notices->end(), trace->notices.begin(), trace->notices.end());
  return config;
}

Config load_config(const CommandLine& command_line, int64_t world_size, std::vector<std::string>* notices, SettingsTrace* trace) {
  SettingsTrace own;
  if (!trace) trace = &own;
  std::string path = command_line.config_path;
  if (std::filesystem::path(path).extension() == ".py") return config_from_text("", path, command_line, world_size, notices, trace);
  if (path.empty()) {
    GivenSettings command = read_command_line(command_line, SettingNames());
    path = model_own_config(command);
    if (path.empty()) {
      trace->form = form_of_flags(command);
      trace->form_known = true;
      trace->defaults = defaults_of(trace->form);
      if (trace->form == SettingsForm::kHuggingFace)
        trace->notices.push_back(
            "no settings file, Hugging Face names: Hugging Face's defaults hold (seed 42, no evaluation during training)");
      if (trace->form == SettingsForm::kModelScope)
        trace->notices.push_back("no settings file, ModelScope names: ModelScope's defaults hold (docs/modelscope.md)");
      Config config = assemble({}, command, world_size, trace);
      if (notices) notices->insert(notices->end(), trace->notices.begin(), trace->notices.end());
      return config;
    }
  }
  trace->source = path;
  return config_from_text(read_settings_text(path), path, command_line, world_size, notices, trace);
}

}  // namespace plait
