// From a model folder to this rank's ParallelModel, and from it back to a model folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "plait/comm/mesh.h"
#include "plait/train/parallelize.h"
#include "plait/train/run_inputs.h"

namespace plait {

// Builds this rank's part and fills it: seeded (model.init random) or from the folder, head_init over it. Training may start without a
// head (seeded then, `say` names it). Reads files, no communication; every rank refuses the same faults with Error(kCheckpoint).
// `config`: instead of inputs.config, where something of it was changed since.
std::unique_ptr<ParallelModel> load_model(const RunInputs& inputs, const Mesh& mesh, at::Device device, bool training,
                                          const std::function<void(const std::string&)>& say, const Config* config = nullptr);

// The same refusals as load_model, from the headers of the model's files alone: before any process group exists.
void check_model_files(const RunInputs& inputs, bool training);

// Writes the weights as a Hugging Face folder (collective over the mesh). `metadata` goes into the heads of the weight files.
void export_folder(const ParallelModel& model, const RunInputs& inputs, Mesh& mesh, const std::string& folder,
                   const std::map<std::string, std::string>& metadata = {});

}  // namespace plait
