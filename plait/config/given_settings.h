// GivenSettings: the settings a user gave, by canonical dotted name, whichever form and spelling they came in. Layers (file, then flags,
// then --set) are read apart and laid over each other; within one layer a setting given twice, under whatever names, is an error.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plait/config/setting_tree.h"

namespace plait {

struct GivenSetting {
  SettingNode value;
  std::string written;  // the name the user wrote: "learning_rate"
  std::string origin;   // "config.yaml:9" or "command line"
  bool command_line = false;
};

class GivenSettings {
 public:
  // Error(kUsage) when `name` is there already.
  void add(const std::string& name, GivenSetting given);
  // What `above` gives replaces what is here.
  void overlay(const GivenSettings& above);
  void erase(const std::string& name) { by_name_.erase(name); }
  // Nothing when not given, or given as null.
  const GivenSetting* find(const std::string& name) const;
  bool has(const std::string& name) const { return find(name) != nullptr; }
  const std::map<std::string, GivenSetting>& all() const { return by_name_; }

 private:
  std::map<std::string, GivenSetting> by_name_;
};

// "learning_rate 3x (hf.json:4)": how messages name a given setting.
std::string quote(const std::string& name, const GivenSetting& given);

// Every name a setting can be given by. Built from the table of settings.
class SettingNames {
 public:
  SettingNames();

  bool is_section(const std::string& dotted) const;  // "train.optimizer"
  // Canonical name of a dotted name, alias or shorthand; "" when unknown.
  std::string canonical(const std::string& dotted) const;
  // Canonical name or section of a flag or flat key without dashes: short names (--model, --lr, --batch_size), Hugging Face names, dotted names.
  // "" when unknown. Error(kUsage) when a bare name is ambiguous.
  std::string canonical_of_flag(const std::string& flag) const;
  std::vector<std::string> top_level() const;  // task, model, dataset, ...
  // The known name most like `dotted`, "" when none is near.
  std::string nearest_dotted(const std::string& dotted) const;
  std::string nearest_flag(const std::string& flag) const;
  // Names inside a section, for messages: "work_dir, max_epochs, ...".
  std::string members(const std::string& section) const;

 private:
  std::vector<std::string> leaves_;               // table order
  std::map<std::string, std::string> canonical_;  // canonical names, aliases and shorthands -> canonical
  std::vector<std::string> sections_;
};

// Shorthands: names that stand for one or two settings of the table.
//   train.optimizer.params.betas [a, b]; evaluation.period.by_epoch; train.fp16, train.bf16; train.distributed.distributed_strategy
struct Shorthand {
  const char* name;
  const char* effect;
};
const std::vector<Shorthand>& shorthands();

// Kept under a name of plait's own until flags and file are merged ("modelscope.optimizer").
bool is_pending_name(const std::string& name);

// Records one setting by its canonical name; shorthands that need no other setting to be understood are taken apart here.
void record_setting(const std::string& canonical, GivenSetting given, GivenSettings* out);

// Reads a native tree (or the part of it below `prefix`) into `out`. Unknown keys: Error(kUsage) with place and nearest known key.
void collect_native(const SettingNode& tree, const std::string& prefix, const SettingNames& names, bool command_line, GivenSettings* out);

// One flag, flat key or --set. `flag` without dashes, '-' and '_' alike.
void collect_flag(const std::string& flag, const SettingNode& value, const std::string& origin, const SettingNames& names,
                  bool command_line, GivenSettings* out);

}  // namespace plait
