// Any bytes as what a model folder holds; the first byte chooses: a safetensors header, config.json, or any
// JSON. Reading ends in an answer or in plait::Error, never in anything else.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "plait/base/error.h"
#include "plait/config/model_shape.h"
#include "plait/config/safetensors_header.h"
#include "plait/config/strict_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0]) {
      case 's': plait::parse_safetensors_header(text, static_cast<int64_t>(text.size()), "fuzz"); break;
      case 'c': plait::parse_model_shape(text, "fuzz"); break;
      case 'j': plait::parse_json_object(text, "fuzz"); break;
      default: break;
    }
  } catch (const plait::Error& error) {
    if (error.code() == plait::ExitCode::kBug) throw;
  }
  return 0;
}
