// parallelize: the one page that decides the order of parallelisms.
//   model on paper -> tensor split inside layers -> layers to pipeline stages -> memory -> values -> pipeline executor
//   -> data-parallel reducer -> remaining gradient syncs -> optimizer
// Rank rule: every rank of the mesh calls it with the same config and shape. Nothing is communicated, but for schedule auto, whose memory
// limit is agreed over the world.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plait/comm/mesh.h"
#include "plait/comm/shared_buffer.h"
#include "plait/config/config.h"
#include "plait/data_parallel/reducer.h"
#include "plait/model/stage_model.h"
#include "plait/optim/gradient_sync.h"
#include "plait/optim/optimizer.h"
#include "plait/pipeline_parallel/executor.h"
#include "plait/plan/pipeline_plan.h"

namespace plait {

// What one rank holds of the model, in order of construction (and torn down in reverse).
struct ParallelModel {
  ModelShape shape;
  HeadOptions head;
  at::ScalarType compute_type = at::kFloat;
  at::Device device = at::kCPU;
  PipelinePlan pipeline;                    // where the stages lie, and the schedules
  std::vector<std::string> notices;         // for people: what was settled here
  ProcessGroupPtr tensor_ring, data_ring;   // style p2p: the axis' collectives made of sends and receives; else null
  std::unique_ptr<SharedPool> tensor_pool;  // of the tensor axis, on CPUs
  WeightGradientQueue weight_gradients;
  ParameterStore store;
  std::vector<std::unique_ptr<StageModel>> stages;  // this rank's virtual stages, ascending
  std::unique_ptr<PipelineExecutor> executor;
  std::unique_ptr<GradientReducer> reducer;  // training only
  std::unique_ptr<GradientSync> sync;        // training only
  std::unique_ptr<Optimizer> optimizer;      // training only
};

struct ParallelizeOptions {
  bool training = true;     // false: no gradients, no reducer and no optimizer
  bool seed_values = true;  // weights get their seeded values (config.train.seed); false: zeros, to be loaded
  bool all_random = false;  // seeded norms and biases are random too, for tests
};

std::unique_ptr<ParallelModel> parallelize(const Config& config, const ModelShape& shape, const HeadOptions& head, const Mesh& mesh,
                                           at::Device device, const ParallelizeOptions& options = {});

// The shape with the settings that override config.json applied (dropout, number of labels).
ModelShape shape_for_run(ModelShape shape, const Config& config, const HeadOptions& head);

at::ScalarType scalar_type(DType dtype);

// The micro-batch with its tensors on `device`; itself on the CPU.
MicroBatch to_device(MicroBatch batch, at::Device device);

}  // namespace plait
