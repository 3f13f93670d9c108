#include "plait/train/input_contents.h"

#include <algorithm>
#include <filesystem>

#include "plait/base/error.h"
#include "plait/base/sha256.h"
#include "plait/checkpoint/safetensors_file.h"
#include "plait/config/strict_json.h"

namespace plait {

namespace {

std::string shortened(const Sha256Digest& digest) { return hex(digest).substr(0, 32); }

// The middle of each tensor: its beginning is often what training never touches (padding, unused words).
std::string weights_digest(const SafetensorsFolder& weights) {
  constexpr int64_t kMostBytes = int64_t{4} << 20, kLeastPiece = 64;
  const int64_t piece = std::max(kLeastPiece, kMostBytes / std::max<int64_t>(1, static_cast<int64_t>(weights.names().size())));
  Sha256 all;
  for (const auto& name : weights.names()) {
    auto tensor = weights.find(name);
    PLAIT_CHECK(tensor, name);
    all.update(cat(name, " ", dtype_name(tensor->dtype), " ", shape_text(tensor->shape), "\n"));
    const int64_t length = std::min(piece, tensor->num_bytes), begin = (tensor->num_bytes - length) / 2;
    all.update({reinterpret_cast<const char*>(tensor->data) + begin, static_cast<size_t>(length)});
  }
  return shortened(all.finish());
}

std::string tokenizer_digest(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  return std::filesystem::exists(path) ? shortened(sha256(read_text_file(path, kMostBytes))) : "none";
}

}  // namespace

std::vector<InputContents> input_contents(const RunInputs& in) {
  const ModelConfig& model = in.config.model;
  const std::string config = model.path + "/config.json", tokenizer = model.path + "/tokenizer.json";
  std::vector<InputContents> found;
  found.push_back({"model.path/config.json", shortened(sha256(in.shape.config_json)), config});
  found.push_back({"model.path/tokenizer.json", tokenizer_digest(tokenizer), tokenizer});
  if (model.init != "random") found.push_back({"model.path/*.safetensors", weights_digest(SafetensorsFolder(model.path)), model.path});
  if (!model.head_init.empty())
    found.push_back({"model.head_init", weights_digest(SafetensorsFolder::of_file(model.head_init)), model.head_init});
  if (const std::string& file = in.config.train.distributed.schedule_file; !file.empty())
    found.push_back({"train.distributed.schedule_file", shortened(sha256(read_text_file(file, int64_t{256} << 20))), file});
  const std::string classes = join(in.labels.names, "\n");
  auto add_rows = [&](const char* name, const DataFileConfig& file, const Dataset& rows) {
    if (!file.file.empty()) found.push_back({name, shortened(sha256(cat(rows.digest(), "\n", classes))), file.file});
  };
  if (in.train.size() > 0) add_rows("dataset.train.file", in.config.dataset.train, in.train);
  add_rows("dataset.valid.file", in.config.dataset.valid, in.valid);
  return found;
}

}  // namespace plait
