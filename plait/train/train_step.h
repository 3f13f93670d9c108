// TrainStep: one optimizer step, from micro-batches to updated weights. Everything that decides the numbers of a step stands here.
// Rank rule: every rank of the mesh calls run() once a step, with its own data rank's micro-batches.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "plait/optim/loss_scaler.h"
#include "plait/optim/lr_scheduler.h"
#include "plait/tensor/profiler.h"
#include "plait/train/parallelize.h"

namespace plait {

struct StepInput {
  std::vector<MicroBatch> micro_batches;  // of this data rank; every data rank has the same number, some may be empty
  int64_t num_targets = 0;                // of the whole global batch: the loss is its mean over them
  int64_t step_index = 0;                 // 0-based; also the dropout step
};

// Of a step with train.comm.compression, all ranks together; the same numbers on all of them.
struct CompressionCost {
  double bytes_sent = 0;            // gradients over the data axis and borders between pipeline stages, as messages on the wire
  double bytes_saved = 0;           // what they would have been uncompressed, less that
  double gradient_bytes_saved = 0;  // of it: gradients
  // l2 norm of what the compressed gradients leave to the next step (with nccl: lose) over that of what they had to pass on.
  std::optional<double> error;  // none without compression of gradients
};

struct StepResult {
  double loss = 0;                             // mean over the global batch, the same on all ranks
  double gradient_norm = 0;                    // before clipping, without the loss scale
  double learning_rate = 0;                    // used in this step
  double loss_scale = 1;                       // used in this step
  bool skipped = false;                        // float16 overflow: nothing moved
  StepTimes times;                             // of this rank, when the step was not begun by the caller
  std::optional<CompressionCost> compression;  // of runs with train.comm.compression
};

class TrainStep {
 public:
  // steps_per_epoch: only a schedule that counts epochs needs it.
  TrainStep(const Config& config, ParallelModel& model, const Mesh& mesh, int64_t total_steps, int64_t steps_per_epoch = 0);

  // Throws Error(kNonFinite) when the loss, or (but for float16) a gradient, is not finite; nothing has moved then.
  StepResult run(const StepInput& input);

  // Times of the steps. Who does more than run() for a step calls begin_step() before it and end_step() after it.
  StepProfiler& profiler() { return profiler_; }

  const LossScaler& loss_scaler() const { return scaler_; }
  // Called after the gradients of a step are final on this rank (reduced, not clipped) and before the norm; for tests and verify.
  void set_gradient_observer(std::function<void(ParameterStore&)> observer) { observer_ = std::move(observer); }
  // Called before any reduction, with this rank's own part.
  void set_local_gradient_observer(std::function<void(ParameterStore&)> observer) { local_observer_ = std::move(observer); }

 private:
  const Schedule& schedule_for(int64_t num_micro_batches);
  StepResult run_measured(const StepInput& input);
  void compute_gradients(const StepInput& input, StepResult* result);
  void update(const StepInput& input, StepResult* result);
  CompressionCost compression_cost(int64_t border_sent, int64_t border_saved) const;  // collective over the world

  const Config& config_;
  ParallelModel& model_;
  const Mesh& mesh_;
  StepProfiler profiler_;
  LossScaler scaler_;
  LrScheduler lr_scheduler_;
  Schedule schedule_;
  std::function<void(ParameterStore&)> observer_, local_observer_;
};

// Sum over data ranks of what the rank of the last stage holds, the same number on every rank of the mesh. Collective over pipeline and data.
std::vector<double> sum_from_last_stage(const std::vector<double>& values, const ParallelModel& model, const Mesh& mesh);

}  // namespace plait
