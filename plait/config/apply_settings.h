// Writes given settings into a Config: scalars to numbers, words and lists, relative paths to absolute ones.
#pragma once

#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/given_settings.h"

namespace plait {

// Fills config's fields and origin from `given`. Paths of a file are relative to `file_folder`, those of flags to the current folder.
// Values of the wrong kind: Error(kUsage) with name, value, place and what is allowed. Numbers that other readers take as octal: a notice.
void apply_settings(const GivenSettings& given, const std::string& file_folder, Config* config, std::vector<std::string>* notices);

}  // namespace plait
