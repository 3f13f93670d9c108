// The one check of a resolved Config, whatever form it came in. Needs no model and no data.
#pragma once

#include <string>
#include <vector>

#include "plait/config/config.h"

namespace plait {

// Ranges of every setting, settings that contradict each other, features that are not available yet. Error(kUsage) names setting, value,
// place, rule and the nearest valid value.
void validate(const Config& config);

// The part of it that looks at one setting at a time.
void check_ranges(const Config& config);

// Wishes of a valid Config that change nothing, a line each.
void report_no_effect(const Config& config, std::vector<std::string>* notices);

// `plait train` also needs a model and training rows: Error(kUsage) names the flag and the key to give.
void require_training_settings(const Config& config);

}  // namespace plait
