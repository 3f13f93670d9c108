// Loading a model folder into a ParameterStore: each rank reads its own pieces straight from the mapped files into the masters, one
// parameter at a time, with conversion. No communication: every rank calls it on its own and refuses the same faults.
// Errors: Error(kCheckpoint): missing and unexpected tensors by name, wrong shape (both shapes), types that are not floating point.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plait/checkpoint/safetensors_file.h"
#include "plait/tensor/parameter.h"

namespace plait {

// One tensor of the whole model, name and shape as Hugging Face stores it.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
};

struct WeightLoadOptions {
  // Every tensor of the whole model, so that each rank checks all of them. Empty: the store's own parameters are checked, and
  // unexpected tensors are not looked for.
  std::vector<TensorSpec> all;
  // Names that may be absent, or prefixes ("classifier" covers classifier.weight); their present (seeded) values stay.
  std::vector<std::string> may_be_missing;
  // Model's name -> name in the file, where they differ.
  std::map<std::string, std::string> aliases;
  // Names or prefixes to load; everything else stays as it is and is not checked. Empty: all.
  std::vector<std::string> only;
};

struct LoadReport {
  std::vector<std::string> seeded;   // allowed to be missing, and missing
  std::vector<std::string> ignored;  // tensors of the folder that this model has no use for (pre-training heads)
  // "" or one line for the user; print it on one rank.
  std::string notice(const std::string& folder) const;
};

// Where each tensor of `wanted` lies, under whatever name the folder uses: with or without the base prefix (bert., transformer.,
// model.), LayerNorm.gamma/beta for weight/bias. Buffers that are no weights are passed over; a stored lm_head.weight is accepted
// for tied embeddings when it equals the table.
struct ResolvedWeights {
  std::map<std::string, std::string> file_name_of;  // model's name -> file's
  LoadReport report;
};
ResolvedWeights resolve_weights(const SafetensorsFolder& folder, const WeightLoadOptions& options);

// Fills the master of every parameter of the store, then refreshes the weights. F64, F32, F16 and BF16 files.
LoadReport load_weights(ParameterStore& store, const SafetensorsFolder& folder, const WeightLoadOptions& options);

}  // namespace plait
