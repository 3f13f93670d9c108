// SettingsTrace: what loading left behind, step by step, for `plait explain`. Filled as far as loading came when it ended in an Error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plait/config/load_config.h"
#include "plait/config/translation.h"

namespace plait {

struct SettingsTrace {
  SettingsForm form = SettingsForm::kNative;
  bool form_known = false;  // loading came that far
  std::string source;       // the file that was read, "" = none
  SettingNode tree;         // as written
  GivenSettings file;       // what its keys became
  GivenSettings merged;     // with the command line laid over, all pending names decided
  TranslationNotes notes;   // keys that are no setting of their own
  std::vector<std::string> notices;
  Config defaults;               // of the form
  std::optional<Config> config;  // resolved
};

}  // namespace plait
