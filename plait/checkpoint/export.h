// Export of a trained model as a Hugging Face folder, written by the ranks that own the pieces: nobody ever holds more of the model
// than its own shard, and nobody sends weights. The files do not depend on the layout. All ranks must see the folder
// (one machine, or a shared file system).
// Rank rule: collective over mesh.world(); every rank passes the same list and options. An error on one rank is thrown on all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plait/checkpoint/weights.h"
#include "plait/comm/mesh.h"
#include "plait/config/config.h"
#include "plait/tensor/parameter.h"

namespace plait {

struct ExportOptions {
  std::string folder;
  DType dtype = DType::kFloat32;                // of the files; converted from the masters
  int64_t max_shard_bytes = 5'000'000'000;      // data of one file, as Hugging Face's max_shard_size
  std::string config_json;                      // text of the folder's config.json (updated_config_json)
  std::vector<std::string> files_to_copy;       // tokenizer files (side_files)
  std::map<std::string, std::string> metadata;  // beside {"format": "pt"} in each file
};

// `all`: every tensor of the whole model; each element must be owned by exactly one (tensor, pipeline) position (Parameter::owner).
// The data rank 0 of each position writes. The folder appears whole or not at all; a folder of the same name stays until then.
// Errors: no space Error(kResource) before any data is written; unwritable folder Error(kUsage); a value beyond float16's range
// Error(kNonFinite) naming the tensor.
void export_model(const ParameterStore& store, const std::vector<TensorSpec>& all, Mesh& mesh, const ExportOptions& options);

}  // namespace plait
