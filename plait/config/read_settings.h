// The first half of loading: a settings file and a command line, each to given settings of native names, before they are merged.
#pragma once

#include <string>
#include <vector>

#include "plait/config/given_settings.h"
#include "plait/config/load_config.h"
#include "plait/config/translation.h"

namespace plait {

// The marks are in docs/settings.md ("How settings are read").
SettingsForm form_of_settings(const SettingNode& root);

// The whole text of a settings file. Error(kUsage): absent, a folder, too big, a Python program.
std::string read_settings_text(const std::string& path);

// Adds to `file`, which holds what was read so far when this throws. `root` must stay where it is while `notes` are read. Notices say
// which keys have no effect.
void read_file_settings(const SettingNode& root, SettingsForm form, const std::string& origin_name, const SettingNames& names,
                        GivenSettings* file, TranslationNotes* notes, std::vector<std::string>* notices);

GivenSettings read_command_line(const CommandLine& command_line, const SettingNames& names);

// Whose defaults hold when there are only flags.
SettingsForm form_of_flags(const GivenSettings& command);

}  // namespace plait
