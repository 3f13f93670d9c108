#include "plait/config/pickled_weights.h"

#include <filesystem>

#include "plait/base/text.h"

namespace plait {

namespace {

const std::string kPickle = ". That is a pickle, which can run any program and is never read. Convert it once where you trust it: ";

bool is_megatron_file(const std::string& name) {
  return name.rfind("mp_rank_", 0) == 0 && name.size() > 20 && name.compare(name.size() - 16, 16, "_model_states.pt") == 0;
}

// The name of a Megatron file, with model/ before it when it lies there; "" when there is none.
std::string megatron_file(const std::string& folder) {
  std::error_code ignored;
  for (const std::string below : {"", "model/"})
    for (const auto& item : std::filesystem::directory_iterator(folder + "/" + below, ignored))
      if (is_megatron_file(item.path().filename().string())) return below + item.path().filename().string();
  return "";
}

}  // namespace

bool has_megatron_weights(const std::string& folder) { return !megatron_file(folder).empty(); }

std::string pickled_weights_advice(const std::string& folder) {
  if (std::string megatron = megatron_file(folder); !megatron.empty())
    return cat("only ", megatron, " of a Megatron model", kPickle, "python3 tools/convert_modelscope_gpt3.py ", folder,
               " NEW_FOLDER (docs/modelscope.md)");
  std::string pickle;
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    std::string name = item.path().filename().string(), extension = item.path().extension().string();
    if (name == "pytorch_model.bin.index.json" || extension == ".bin" || extension == ".pt" || extension == ".pth")
      if (pickle.empty() || name == "pytorch_model.bin") pickle = name;
  }
  if (pickle.empty()) return "";
  return cat("only ", pickle, kPickle, "python3 -c \"from transformers import AutoModel; AutoModel.from_pretrained('", folder,
             "').save_pretrained('", folder, "')\"");
}

}  // namespace plait
