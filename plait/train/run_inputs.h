// RunInputs: everything a run knows before any process group exists: model shape, class names, tokenised rows. All refusals that need
// only settings, model files and data files happen here, the same on every rank.
#pragma once

#include <functional>
#include <string>

#include "plait/config/config.h"
#include "plait/data/dataset.h"
#include "plait/model/stage_model.h"
#include "plait/plan/mesh_layout.h"

namespace plait {

struct RunInputs {
  Config config;
  ModelShape shape;  // as config.json says
  HeadOptions head;
  MeshLayout layout;
  LabelMap labels;       // classification
  Dataset train, valid;  // valid may be empty
};

enum class RunKind { kTrain, kEvaluate, kPredict };

// Reads config.json, tokenizer and data. `cache_dir`: where tokenised rows are kept, empty = nowhere. `say`: lines for people.
// Evaluation and prediction read dataset.valid only and take the class names from the model.
RunInputs prepare_inputs(const Config& config, RunKind kind, const std::string& cache_dir,
                         const std::function<void(const std::string&)>& say);

MeshLayout layout_of(const Config& config);

}  // namespace plait
