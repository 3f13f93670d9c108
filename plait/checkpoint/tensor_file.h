// A small safetensors file from tensors in memory: logits, golden values. Not for models: those go through export.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace plait {

// fp32 and int64 CPU tensors, written under their names, whole or not at all. No communication: call on one rank.
// Errors: as AtomicFile; another type is a bug.
void write_tensor_file(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace plait
