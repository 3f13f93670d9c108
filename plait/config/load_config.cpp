#include "plait/config/load_config.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "plait/base/error.h"
#include "plait/config/apply_settings.h"
#include "plait/config/given_settings.h"
#include "plait/config/hugging_face.h"
#include "plait/config/resolve.h"
#include "plait/config/scalar.h"
#include "plait/config/validate.h"

namespace plait {

namespace {

const std::string kData = "train.distributed.data_parallel_size", kModel = "train.distributed.model_parallel_size",
                  kPipeline = "train.distributed.pipeline_parallel_size", kStrategy = "train.distributed.distributed_strategy",
                  kStageLayers = "train.distributed.pipeline_layers", kVirtual = "train.distributed.virtual_pipeline_size";
const std::string kBatch = "train.batch_size", kPerDevice = "train.per_device_train_batch_size",
                  kAccumulation = "train.distributed.gradient_accumulation_steps";

SettingsForm form_of(const SettingNode& root) {
  const SettingNode* train = root.find("train");
  bool is_section = train && train->is_map();
  if (is_section && train->find("distributed")) return SettingsForm::kNative;
  if (root.find("zero_optimization") || root.find("train_micro_batch_size_per_gpu")) return SettingsForm::kDeepSpeed;
  if (root.find("framework") || (is_section && train->find("dataloader"))) return SettingsForm::kModelScope;
  if (root.find("per_device_train_batch_size") || root.find("output_dir")) return SettingsForm::kHuggingFace;
  return SettingsForm::kNative;
}

std::string text_of(const GivenSettings& given, const std::string& name) {
  const GivenSetting* found = given.find(name);
  if (!found) return "";
  if (found->value.kind != SettingNode::Kind::kScalar) throw_error(ExitCode::kUsage, quote(found->written, *found), " must be one word");
  return found->value.text;
}

// fp16 / bf16: true becomes train.dtype of this layer; a false stays for merge_layers.
void fold_precision(GivenSettings* layer) {
  const GivenSetting* chosen = nullptr;
  std::string chosen_dtype;
  for (const char* name : {"train.fp16", "train.bf16"}) {
    const GivenSetting* given = layer->find(name);
    if (!given) continue;
    std::string dtype = std::string(name) == "train.fp16" ? "float16" : "bfloat16";
    auto on = parse_bool_text(text_of(*layer, name));
    if (!on) throw_error(ExitCode::kUsage, quote(given->written, *given), " is not true or false");
    const GivenSetting* direct = layer->find("train.dtype");
    std::string said = text_of(*layer, "train.dtype");
    bool same = said == dtype || said == (dtype == "float16" ? "fp16" : "bf16");
    if (direct && *on != same)
      throw_error(ExitCode::kUsage, quote(given->written, *given), " contradicts ", quote(direct->written, *direct));
    if (!*on) continue;
    if (chosen)
      throw_error(ExitCode::kUsage, quote(chosen->written, *chosen), " contradicts ", quote(given->written, *given), "; keep one");
    chosen = given;
    chosen_dtype = dtype;
  }
  if (!chosen) return;
  GivenSetting wish = *chosen;
  wish.value.text = chosen_dtype;
  layer->erase("train.dtype");
  layer->add("train.dtype", wish);
}

// Pairs of which a flag replaces the file's other one.
const std::vector<std::pair<std::string, std::string>>& alternatives() {
  static const std::vector<std::pair<std::string, std::string>> pairs = {
      {"train.lr_scheduler.warmup_steps", "train.lr_scheduler.warmup_ratio"}, {"train.max_steps", "train.max_epochs"}};
  return pairs;
}

void merge_layers(GivenSettings* file, const GivenSettings& above) {
  for (const auto& [one, other] : alternatives()) {
    if (above.has(one) && !above.has(other)) file->erase(other);
    if (above.has(other) && !above.has(one)) file->erase(one);
  }
  for (const char* name : {"train.fp16", "train.bf16"}) {
    bool turned_off = above.has(name) && !parse_bool_text(text_of(above, name)).value_or(true);
    std::string dtype = text_of(*file, "train.dtype");
    bool was_on = std::string(name) == "train.fp16" ? dtype == "float16" || dtype == "fp16" : dtype == "bfloat16" || dtype == "bf16";
    if (turned_off && was_on) file->erase("train.dtype");
  }
  file->overlay(above);
}

// What the file said about the layout when the command line replaces it as a whole.
struct ReplacedLayout {
  bool replaced = false;
  std::vector<std::pair<std::string, GivenSetting>> sizes;  // left out on the command line
  std::optional<GivenSetting> pipeline, stage_layers, virtual_pipeline;
};

ReplacedLayout replace_layout(GivenSettings* file, const GivenSettings& command) {
  ReplacedLayout out;
  std::string strategy = text_of(command, kStrategy);
  bool fixes_sizes = !strategy.empty() && strategy != "hybrid_parallel" && strategy != "auto_parallel";
  if (!command.has(kData) && !command.has(kModel) && !command.has(kPipeline) && !fixes_sizes) return out;
  out.replaced = true;
  for (const auto& name : {kData, kModel, kPipeline}) {
    const GivenSetting* old = file->find(name);
    if (old && name == kPipeline) out.pipeline = *old;
    if (old && !command.has(name)) out.sizes.emplace_back(name, *old);
    file->erase(name);
  }
  file->erase(kStrategy);
  // Stages of another pipeline mean nothing here; they come back when the pipeline size turns out the same.
  for (auto [name, slot] : {std::pair{&kStageLayers, &out.stage_layers}, std::pair{&kVirtual, &out.virtual_pipeline}}) {
    if (const GivenSetting* old = file->find(*name); old && !command.has(*name)) *slot = *old;
    if (!command.has(*name)) file->erase(*name);
  }
  return out;
}

std::string short_name(const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); }

void report_replaced(const ReplacedLayout& old, const GivenSettings& merged, const Config& config, int64_t world_size,
                     std::vector<std::string>* notices) {
  const auto& d = config.train.distributed;
  std::vector<int64_t> fixed;
  for (auto [name, value] :
       {std::pair{kData, d.data_parallel_size}, std::pair{kModel, d.model_parallel_size}, std::pair{kPipeline, d.pipeline_parallel_size}})
    if (merged.has(name)) fixed.push_back(value);
  std::string reason = fixed.empty() ? cat("the command line says distributed_strategy ", text_of(merged, kStrategy))
                                     : cat("the command line fixes ", join(fixed, " x "));
  reason += world_size > 0 ? cat(" on ", world_size, " ranks") : "";
  for (const auto& [name, given] : old.sizes) {
    int64_t now = name == kData ? d.data_parallel_size : name == kModel ? d.model_parallel_size : d.pipeline_parallel_size;
    if (parse_integer_text(given.value.text) != now)
      notices->push_back(cat(short_name(name), " ", given.value.summary(), " (", given.origin, ") replaced by ", now, ": ", reason));
  }
}

// pipeline_layers and virtual_pipeline_size of the file hold only while its pipeline size does.
void restore_stages(const ReplacedLayout& old, GivenSettings* merged, int64_t pipeline_size, std::vector<std::string>* notices) {
  int64_t was = old.pipeline ? parse_integer_text(old.pipeline->value.text).value_or(0) : 1;
  for (auto [name, slot] : {std::pair{&kStageLayers, &old.stage_layers}, std::pair{&kVirtual, &old.virtual_pipeline}}) {
    if (!*slot) continue;
    if (was == pipeline_size) merged->add(*name, **slot);
    else
      notices->push_back(cat(short_name(*name), " ", (*slot)->value.summary(), " (", (*slot)->origin,
                             ") left out: it was for pipeline_parallel_size ", was, ", the command line makes it ", pipeline_size));
  }
}

GivenSettings read_command_line(const CommandLine& command_line, const SettingNames& names) {
  GivenSettings flags, sets;
  for (const auto& [name, value] : command_line.flags)
    collect_flag(name, parse_flag_value(value, "--" + name), "command line", names, true, &flags);
  for (const auto& set : command_line.sets) {
    size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0)
      throw_error(ExitCode::kUsage, "--set ", set, " is not NAME=VALUE, as in --set train.batch_size=32");
    collect_flag(set.substr(0, equals), parse_flag_value(set.substr(equals + 1), "--set " + set.substr(0, equals)), "command line", names,
                 true, &sets);
  }
  fold_precision(&flags);
  fold_precision(&sets);
  merge_layers(&flags, sets);
  return flags;
}

GivenSettings read_file(const SettingNode& root, SettingsForm form, const std::string& origin_name, const SettingNames& names) {
  GivenSettings file;
  if (form == SettingsForm::kDeepSpeed)
    throw_error(ExitCode::kUsage, origin_name, ": this is a DeepSpeed configuration (",
                root.find("zero_optimization") ? "zero_optimization" : "train_micro_batch_size_per_gpu",
                "); plait does not read this form yet: write a native YAML (docs/settings.md)");
  if (form == SettingsForm::kModelScope)
    throw_error(ExitCode::kUsage, origin_name, ": this is a ModelScope configuration (",
                root.find("framework") ? "framework" : "train.dataloader",
                "); plait does not read this form yet: write a native YAML (docs/settings.md)");
  if (form == SettingsForm::kNative) {
    collect_native(root, "", names, false, &file);
  } else {
    for (const auto& entry : root.entries) collect_flag(entry.key, entry.value, entry.origin, names, false, &file);
  }
  fold_precision(&file);
  return file;
}

bool flags_are_hugging_face(const GivenSettings& command) {
  const GivenSetting* per_device = command.find(kPerDevice);
  const GivenSetting* work_dir = command.find("train.work_dir");
  return (per_device && per_device->written == "per_device_train_batch_size") || (work_dir && work_dir->written == "output_dir");
}

Config assemble(GivenSettings file, const GivenSettings& command, bool is_hugging_face, const std::string& source, int64_t world_size,
                std::vector<std::string>* notices) {
  Config config;
  if (is_hugging_face) set_hugging_face_defaults(&config);
  config.source = source;
  std::string folder = std::filesystem::path(source).parent_path().string();
  ReplacedLayout old = replace_layout(&file, command);
  merge_layers(&file, command);
  finish_hugging_face(&file, is_hugging_face, notices);
  if (const GivenSetting* strategy = file.find(kStrategy)) config.origin[kStrategy] = strategy->origin;
  Config layout = config;  // sizes first: which stage settings hold depends on them
  std::vector<std::string> ignored;
  apply_settings(file, folder, &layout, &ignored);
  check_ranges(layout);
  GivenSizes sizes{file.has(kData), file.has(kModel), file.has(kPipeline)};
  resolve_layout(&layout, sizes, text_of(file, kStrategy), world_size);
  if (old.replaced) {
    restore_stages(old, &file, layout.train.distributed.pipeline_parallel_size, notices);
    report_replaced(old, file, layout, world_size, notices);
  }
  apply_settings(file, folder, &config, notices);
  check_ranges(config);
  resolve_layout(&config, sizes, text_of(file, kStrategy), world_size);
  GivenBatch batch{file.has(kBatch), file.has(kPerDevice), file.has(kAccumulation)};
  // Hugging Face's own defaults are 8 rows and no accumulation, also for a pipeline.
  if (is_hugging_face && !batch.batch_size) batch.per_device = true;
  resolve_batch(&config, batch, Config().train.per_device_train_batch_size);
  validate(config);
  return config;
}

}  // namespace

Config config_from_text(const std::string& text, const std::string& origin_name, const CommandLine& command_line, int64_t world_size,
                        std::vector<std::string>* notices) {
  std::vector<std::string> unheard;
  if (!notices) notices = &unheard;
  SettingNames names;
  SettingNode root = parse_settings(text, origin_name);
  SettingsForm form = form_of(root);
  GivenSettings file = read_file(root, form, origin_name, names);
  GivenSettings command = read_command_line(command_line, names);
  return assemble(std::move(file), command, form == SettingsForm::kHuggingFace, origin_name, world_size, notices);
}

Config load_config(const CommandLine& command_line, int64_t world_size, std::vector<std::string>* notices) {
  std::vector<std::string> unheard;
  if (!notices) notices = &unheard;
  if (command_line.config_path.empty()) {
    GivenSettings command = read_command_line(command_line, SettingNames());
    bool is_hugging_face = flags_are_hugging_face(command);
    if (is_hugging_face)
      notices->push_back("no settings file, Hugging Face names: Hugging Face's defaults hold (seed 42, no evaluation during training)");
    return assemble({}, command, is_hugging_face, "", world_size, notices);
  }
  const std::string& path = command_line.config_path;
  std::error_code problem;
  if (!std::filesystem::exists(path, problem)) throw_error(ExitCode::kUsage, "settings file ", path, " does not exist");
  if (std::filesystem::is_directory(path, problem)) throw_error(ExitCode::kUsage, "settings file ", path, " is a folder");
  std::uintmax_t size = std::filesystem::file_size(path, problem);
  if (!problem && size > kMaxSettingBytes)
    throw_error(ExitCode::kUsage, path, ": ", size, " bytes; a settings file has at most ", kMaxSettingBytes);
  std::ifstream stream(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream.eof() && !stream.good()) throw_error(ExitCode::kUsage, "settings file ", path, " cannot be read");
  return config_from_text(text, path, command_line, world_size, notices);
}

}  // namespace plait
