#include "plait/config/read_settings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "plait/base/error.h"
#include "plait/config/deepspeed.h"
#include "plait/config/layers.h"
#include "plait/config/modelscope.h"
#include "plait/config/scalar.h"

namespace plait {

namespace {

const SettingEntry* first_entry(const SettingNode& root, const std::vector<const char*>& marks) {
  for (const char* mark : marks)
    for (const auto& entry : root.entries)
      if (entry.key == mark && !entry.value.is_null()) return &entry;
  return nullptr;
}

// Names that only flat ModelScope files have.
const SettingEntry* flat_modelscope_mark(const SettingNode& root) {
  return first_entry(root, {"model_dir", "save_checkpoint_epochs", "train_dataset_name", "val_dataset_name"});
}

bool has_own_modelscope_name(const SettingNode& root) {
  for (const auto& entry : root.entries)
    if (const ModelScopeName* known = find_modelscope_name(entry.key); known && known->own && !entry.value.is_null()) return true;
  return false;
}

// output_dir is Hugging Face's; per_device_train_batch_size is in both vocabularies, so any name of ModelScope's own decides.
SettingsForm form_of_flat_file(const SettingNode& root) {
  const SettingEntry* theirs = flat_modelscope_mark(root);
  const SettingEntry* output = first_entry(root, {"output_dir"});
  if (output && theirs)
    throw_error(ExitCode::kUsage, output->key, " (", output->origin, ") marks Hugging Face TrainingArguments, and ", theirs->key, " (",
                theirs->origin,
                ") a ModelScope file, whose defaults differ: keep one, as in work_dir for output_dir, or model for model_dir");
  if (output) return SettingsForm::kHuggingFace;
  bool per_device = root.find("per_device_train_batch_size");
  if (theirs || (per_device && has_own_modelscope_name(root))) return SettingsForm::kModelScope;
  return per_device ? SettingsForm::kHuggingFace : SettingsForm::kNative;
}

void report_unknown(FileTranslator* file, const std::string& origin_name, std::vector<std::string>* notices) {
  std::vector<Place> unknown = file->left_over();
  if (!unknown.empty()) notices->push_back(cat("warning: keys nobody here knows, without effect: ", list_places(unknown)));
  for (const Place& place : unknown) file->ignore(place, "unknown key");
  size_t without = file->notes()->ignored.size() - unknown.size();
  if (without > 0)
    notices->push_back(cat(without, " keys of ", origin_name, " have no effect here; plait explain ", origin_name, " says why"));
}

// The JSON of a DeepspeedHook or of Hugging Face's `deepspeed`: a file beside the settings (a flag's: in the current folder), or a
// section. What the settings say too must be the same.
void add_deepspeed_config(const std::string& pending, const std::string& origin_name, GivenSettings* file, TranslationNotes* notes) {
  auto given = detail::take_pending(file, pending);
  if (!given) return;
  const GivenSetting& config = *given;
  SettingNode root = config.value;
  if (root.kind == SettingNode::Kind::kScalar && (root.text.empty() || parse_bool_text(root.text) == false)) return;
  notes->derived[config.written] = "its keys are settings";
  if (!root.is_map()) {
    if (root.kind != SettingNode::Kind::kScalar)
      throw_error(ExitCode::kUsage, quote(config.written, config), " must be a file or a section");
    std::filesystem::path path = std::filesystem::path(origin_name).parent_path() / root.text;
    root = parse_settings(read_settings_text(path.string()), path.string());
  }
  GivenSettings read;
  FileTranslator translator(root, &read, notes, config.command_line);
  translate_deepspeed(&translator);
  for (const auto& [name, setting] : read.all()) {
    const GivenSetting* there = file->find(name);
    bool same =
        there && (there->value.text == setting.value.text ||
                  (parse_real_text(there->value.text) && parse_real_text(there->value.text) == parse_real_text(setting.value.text)));
    if (!same) file->add(name, setting);
  }
}

// "train.dataloader.batch_size_per_gpu" 4 -> {train: {dataloader: {batch_size_per_gpu: 4}}}
SettingNode tree_of_flag(const std::string& dotted, SettingNode value) {
  auto dot = dotted.rfind('.');
  SettingNode map;
  map.kind = SettingNode::Kind::kMap;
  map.origin = "command line";
  map.entries.push_back({dot == std::string::npos ? dotted : dotted.substr(dot + 1), "command line", std::move(value)});
  return dot == std::string::npos ? map : tree_of_flag(dotted.substr(0, dot), std::move(map));
}

// Dotted names that only ModelScope's files have. False when it is none.
bool collect_modelscope_path(const std::string& name, const SettingNode& value, const SettingNames& names, GivenSettings* out) {
  std::string first = name.substr(0, name.find('.'));
  static const std::vector<std::string> sections = {"train", "evaluation", "megatron", "model", "dataset", "preprocessor", "parallel"};
  if (first == name || std::find(sections.begin(), sections.end(), first) == sections.end()) return false;
  if (!names.canonical(name).empty() || names.is_section(name) || value.is_null()) return false;
  if (std::count(name.begin(), name.end(), '.') >= static_cast<std::ptrdiff_t>(kMaxSettingDepth)) return false;
  SettingNode tree = tree_of_flag(name, value);
  GivenSettings read;
  TranslationNotes notes;
  FileTranslator translator(tree, &read, &notes, true);
  translate_modelscope(&translator);
  if (!translator.left_over().empty()) return false;
  for (const auto& [canonical, setting] : read.all()) out->add(canonical, setting);
  return true;
}

void collect_command(const std::string& flag, const SettingNode& value, const SettingNames& names, GivenSettings* out) {
  std::string name = flag;
  std::replace(name.begin(), name.end(), '-', '_');
  if (name.empty() || name.front() == '.' || name.back() == '.' || name.find("..") != std::string::npos)
    throw_error(ExitCode::kUsage, "the name '", flag, "' (command line) has an empty part; names are like train.batch_size");
  if (!collect_modelscope_path(name, value, names, out)) collect_flag(flag, value, "command line", names, true, out);
}

}  // namespace

SettingsForm form_of_settings(const SettingNode& root) {
  const SettingNode* train = root.find("train");
  bool is_section = train && train->is_map();
  if (is_section && train->find("distributed")) return SettingsForm::kNative;
  for (const char* mark : {"zero_optimization", "train_micro_batch_size_per_gpu"})
    if (root.find(mark)) return SettingsForm::kDeepSpeed;
  // Beside Hugging Face's marks it is a slip for per_device_train_batch_size, which the message then names.
  bool hugging_face = root.find("output_dir") || root.find("per_device_train_batch_size");
  if (root.find("train_batch_size") && !hugging_face) return SettingsForm::kDeepSpeed;
  if (root.find("framework") || (is_section && train->find("dataloader"))) return SettingsForm::kModelScope;
  return form_of_flat_file(root);
}

std::string read_settings_text(const std::string& path) {
  std::error_code problem;
  if (!std::filesystem::exists(path, problem)) throw_error(ExitCode::kUsage, "settings file ", path, " does not exist");
  if (std::filesystem::is_directory(path, problem)) throw_error(ExitCode::kUsage, "settings file ", path, " is a folder");
  std::uintmax_t size = std::filesystem::file_size(path, problem);
  if (!problem && size > kMaxSettingBytes)
    throw_error(ExitCode::kUsage, path, ": ", size, " bytes; a settings file has at most ", kMaxSettingBytes);
  std::ifstream stream(path, std::ios::binary);
  std::string text(kMaxSettingBytes + 1, '\0');  // a pipe or a device has no size to look at first
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMaxSettingBytes) throw_error(ExitCode::kUsage, path, ": a settings file has at most ", kMaxSettingBytes, " bytes");
  if (!stream.eof() && !stream.good()) throw_error(ExitCode::kUsage, "settings file ", path, " cannot be read");
  return text;
}

void read_file_settings(const SettingNode& root, SettingsForm form, const std::string& origin_name, const SettingNames& names,
                        GivenSettings* file, TranslationNotes* notes, std::vector<std::string>* notices) {
  FileTranslator translator(root, file, notes);
  if (form == SettingsForm::kNative) {
    collect_native(root, "", names, false, file);
  } else if (form == SettingsForm::kHuggingFace) {
    for (const auto& entry : root.entries) collect_flag(entry.key, entry.value, entry.origin, names, false, file);
    add_deepspeed_config("hugging_face.deepspeed", origin_name, file, notes);
  } else if (form == SettingsForm::kDeepSpeed) {
    translate_deepspeed(&translator);
  } else {
    bool flat = !root.find("framework") && !(root.find("train") && root.find("train")->is_map());
    if (flat) translate_modelscope_flat(&translator, names);
    else translate_modelscope(&translator);
    add_deepspeed_config("modelscope.deepspeed_config", origin_name, file, notes);
    report_unknown(&translator, origin_name, notices);
  }
  fold_precision(file);
}

GivenSettings read_command_line(const CommandLine& command_line, const SettingNames& names) {
  GivenSettings flags, sets;
  for (const auto& [name, value] : command_line.flags) collect_command(name, parse_flag_value(value, "--" + name), names, &flags);
  for (const auto& set : command_line.sets) {
    size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0)
      throw_error(ExitCode::kUsage, "--set ", set, " is not NAME=VALUE, as in --set train.batch_size=32");
    std::string name = set.substr(0, equals);
    collect_command(name, parse_flag_value(set.substr(equals + 1), "--set " + name), names, &sets);
  }
  TranslationNotes notes;
  for (auto* layer : {&flags, &sets})
    for (const char* pending : {"modelscope.deepspeed_config", "hugging_face.deepspeed"}) add_deepspeed_config(pending, "", layer, &notes);
  fold_precision(&flags);
  fold_precision(&sets);
  merge_layers(&flags, sets);
  return flags;
}

SettingsForm form_of_flags(const GivenSettings& command) {
  bool hugging_face = false;
  for (const auto& [name, setting] : command.all()) {
    const ModelScopeName* known = setting.value.is_null() ? nullptr : find_modelscope_name(setting.written);
    if (known && known->own) return SettingsForm::kModelScope;
    hugging_face |= !setting.value.is_null() && (setting.written == "per_device_train_batch_size" || setting.written == "output_dir");
  }
  return hugging_face ? SettingsForm::kHuggingFace : SettingsForm::kNative;
}

}  // namespace plait
