// Where every byte of an exported model lies, as a function of the list of tensors alone: all ranks compute the same plan without
// talking, and the files do not depend on the layout. No tensors here.
// Order and headers are those of Hugging Face's writer: tensors by name, header padded to 8 bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plait/checkpoint/weights.h"
#include "plait/config/config.h"

namespace plait {

struct PlannedFile {
  std::string name;       // model.safetensors, or model-00001-of-00002.safetensors
  std::string head;       // length and JSON header
  int64_t num_bytes = 0;  // whole file
};

struct PlannedTensor {
  std::vector<int64_t> shape;
  size_t file_index = 0;
  int64_t begin = 0;  // byte of the file
};

struct ExportPlan {
  FileDType dtype = FileDType::kF32;
  std::vector<PlannedFile> files;
  std::map<std::string, PlannedTensor> tensors;
  std::string index_json;    // empty for a single file
  int64_t num_elements = 0;  // of all tensors
};

// max_shard_bytes: a file holds at most that much data, except for a single larger tensor.
ExportPlan plan_export(const std::vector<TensorSpec>& all, DType dtype, int64_t max_shard_bytes,
                       const std::map<std::string, std::string>& metadata);

}  // namespace plait
