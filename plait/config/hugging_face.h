// Hugging Face TrainingArguments: which names are read, which native setting each is, and which are accepted only with the value
// that asks for nothing (plait does not have the feature yet). Names that need another name to be understood are
// kept as "hugging_face.NAME" until finish_hugging_face.
#pragma once

#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/given_settings.h"

namespace plait {

struct HuggingFaceName {
  std::string name;
  std::string canonical;  // native dotted name, or "hugging_face.NAME"
  std::string effect;     // for docs/settings.md, only where the native setting does not say it all
  bool v4 = false;        // the older of two names
};

const std::vector<HuggingFaceName>& hugging_face_names();

// Names of features plait does not have: accepted only with one of `off` (lower case; null is always off).
struct UnavailableName {
  std::string name;
  std::vector<std::string> off;
  std::string why;
};
const std::vector<UnavailableName>& unavailable_names();

// Hugging Face's own defaults where they differ from the native ones.
void set_hugging_face_defaults(Config* config);

// Rewrites values whose Hugging Face meaning differs (max_steps -1, warmup_steps 0.1, lr_scheduler_type), just before `given` is recorded.
// Returns the canonical name, which may change.
std::string translate_hugging_face(const HuggingFaceName& name, GivenSetting* given);

// After the layers are merged: turns every hugging_face.* entry into native settings or an Error(kUsage). `is_hugging_face_form`:
// Hugging Face's own defaults count. Notices say what has no effect and why.
void finish_hugging_face(GivenSettings* given, bool is_hugging_face_form, std::vector<std::string>* notices);

}  // namespace plait
