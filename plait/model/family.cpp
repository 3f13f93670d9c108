#include "plait/model/family.h"

#include "plait/base/error.h"

namespace plait {

const FamilyNames& family_names(Family family) {
  switch (family) {
    case Family::kBert: return bert_names();
    case Family::kGpt2: return gpt2_names();
    case Family::kLlama: return llama_names();
  }
  PLAIT_CHECK(false, "family");
  return bert_names();
}

std::string layer_name(const std::string& pattern, int64_t layer) {
  auto at = pattern.find("{}");
  return at == std::string::npos ? pattern : pattern.substr(0, at) + std::to_string(layer) + pattern.substr(at + 2);
}

}  // namespace plait
