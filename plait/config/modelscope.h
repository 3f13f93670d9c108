// ModelScope settings: configuration.json of a model folder, the EasyNLP YAML, flat arguments, and the flags of ModelScope's examples.
// Files are translated key by key (translation.h); names that need another one to be understood, or that a flag may still replace, are
// kept as "modelscope.NAME" until finish_modelscope. docs/modelscope.md says what every key becomes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/translation.h"

namespace plait {

struct ModelScopeName {
  std::string name;
  std::string canonical;  // native dotted name, "modelscope.NAME", or "" = no effect
  std::string effect;
  bool own = false;  // nobody else uses this name: flags with it ask for ModelScope's defaults
};

// Flags of ModelScope's training arguments; the flat file form has the same names. Those that Hugging Face has too are in its list.
const std::vector<ModelScopeName>& modelscope_names();
const ModelScopeName* find_modelscope_name(const std::string& name);
// Records one of them. Error(kUsage) when its value asks for something plait does not have.
void collect_modelscope_name(const ModelScopeName& name, GivenSetting given, GivenSettings* out);

// ModelScope's own defaults where they differ from the native ones.
void set_modelscope_defaults(Config* config);

// Sectioned files, and trees made of dotted flags. Left-over keys are the caller's to report.
void translate_modelscope(FileTranslator* file);

// Flat files: model_dir, lr, optimizer, ... `unknown` gets the keys nobody knows.
void translate_modelscope_flat(FileTranslator* file, const SettingNames& names);

// Flags that Hugging Face has too, in ModelScope's sense; before finish_hugging_face.
void adopt_shared_names(GivenSettings* given);

// After the layers are merged: turns every modelscope.* entry into native settings or an Error(kUsage). `is_form`: ModelScope's
// own defaults count. `source`: the settings file ("" = none); a model folder's own configuration.json stands for its model.
void finish_modelscope(GivenSettings* given, bool is_form, const std::string& source, TranslationNotes* notes,
                       std::vector<std::string>* notices);

// megatron.world_size (model.world_size of older files, --world_size) out of `given`: the number of ranks this run must have, 0 = not given.
// Error(kUsage) that shows the right number when `launched` ranks (0 = no launcher) are not as many.
int64_t take_modelscope_world(GivenSettings* given, int64_t launched);

namespace detail {
// Parts of translate_modelscope and finish_modelscope.
void translate_optimizer(FileTranslator* file, const Place& optimizer);
void translate_optimizer_options(FileTranslator* file, const Place& options);
void translate_loss_scale(FileTranslator* file, const Place& loss_scale);
void translate_lr_scheduler(FileTranslator* file, const Place& scheduler);
void translate_lr_options(FileTranslator* file, const Place& options);
void translate_hooks(FileTranslator* file, const Place& train, const Place& evaluation);
void translate_evaluation_period(FileTranslator* file, const Place& period);
void translate_metrics(FileTranslator* file, const Place& metrics);
// set_comm_priority, enable_comm_compression and `comm` of a section; DeepSpeed files may hold them too.
void translate_messages(FileTranslator* file, const Place& section);
// The calls' names in native and flat files, at the top or in train or train.distributed, and as flags. False: `path` is none of them.
// Error(kUsage) for arguments that the call does not have.
bool is_message_call(const std::string& path);
bool collect_message_call(const std::string& path, const SettingNode& value, const std::string& origin, bool command_line,
                          GivenSettings* out);
void finish_optimizer(GivenSettings* given, bool is_form);
void finish_lr_scheduler(GivenSettings* given, bool is_form, std::vector<std::string>* notices);

// plait's word for a task id of ModelScope ("nli" -> "text-classification"); "" = not available.
std::string native_task(std::string id);

// One pending entry taken out of `given`; nothing when not given.
std::optional<GivenSetting> take_pending(GivenSettings* given, const std::string& name);
// Replaces a native setting; `from` keeps name and place for messages.
void put_setting(GivenSettings* given, const std::string& name, GivenSetting from, const std::string& text);
}  // namespace detail

}  // namespace plait
