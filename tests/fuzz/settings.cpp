// Any bytes as a settings file, as YAML and as JSON: loading ends in a Config or in plait::Error, never in anything else.
#include <cstddef>
#include <cstdint>
#include <string>

#include "plait/base/error.h"
#include "plait/config/load_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"fuzz.yaml", "fuzz.json"}) {
    try {
      std::vector<std::string> notices;
      plait::Config config = plait::config_from_text(text, name, {}, 0, &notices);
      // What is printed must read back.
      plait::config_from_text(plait::print_config(config), "resolved.yaml");
    } catch (const plait::Error& error) {
      if (error.code() == plait::ExitCode::kBug) throw;
    }
  }
  return 0;
}
