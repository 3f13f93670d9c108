// Trainer: the loop over epochs and steps of one rank, with evaluation, metrics and export. Everything it needs is in RunInputs and Mesh.
// Rank rule: every rank of the mesh constructs and runs it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "plait/base/run_control.h"
#include "plait/comm/mesh.h"
#include "plait/data/sampler.h"
#include "plait/train/early_stop.h"
#include "plait/train/event_file.h"
#include "plait/train/fault.h"
#include "plait/train/metrics.h"
#include "plait/train/progress.h"
#include "plait/train/run_inputs.h"
#include "plait/train/saved_weights.h"
#include "plait/train/train_step.h"

namespace plait {

struct TrainSummary {
  int64_t num_steps = 0;
  double last_loss = 0;
  std::optional<EvalResult> last_evaluation;
  std::optional<double> best_value;        // of the first metric
  std::string last_written;                // the newest weights written during training; may be empty
  std::string output_folder, best_folder;  // best_folder empty without evaluation
  double train_seconds = 0;                // steps only
  int64_t peak_bytes = 0;                  // tensors, the largest rank; 0 when the caching allocator is not installed
  int stop_signal = 0;                     // the run was asked to end and did after num_steps; output_folder is empty then
};

class Trainer {
 public:
  // Loads the weights. `say`: lines for people, called on rank 0 only. `control`: where the rank shows its step and phase, and is asked
  // to stop.
  Trainer(const RunInputs& inputs, Mesh& mesh, at::Device device, const std::function<void(const std::string&)>& say,
          const RunControl& control = {});

  // Trains, evaluates, exports. Errors: Error(kNonFinite), kResource, and what communication throws.
  TrainSummary run();

  // For programs of their own.
  ParallelModel& model() { return *model_; }
  TrainStep& step() { return *step_; }

 private:
  bool stops(int signal, int64_t step);
  void train_one_step(int64_t step, EpochOrder& order);
  bool evaluation_due(int64_t step) const;
  // True: training has stopped to get better.
  bool evaluate_now(int64_t step);
  void report_evaluation(int64_t step, const EvalResult& result);
  void save_now(int64_t step);
  StepInput step_input(const std::vector<int64_t>& rows, int64_t step) const;
  void write_step(int64_t step, const StepResult& result, int64_t num_rows, int64_t num_tokens, double seconds);

  const RunInputs& in_;
  Mesh& mesh_;
  at::Device device_;
  std::function<void(const std::string&)> say_;
  RunControl control_;
  std::optional<Fault> fault_;
  std::unique_ptr<ParallelModel> model_;
  StepPlan plan_;
  std::unique_ptr<TrainStep> step_;
  std::unique_ptr<MetricsLog> metrics_;  // rank 0
  std::unique_ptr<EventFile> events_;    // rank 0, where asked for
  std::optional<EarlyStop> early_stop_;
  SavedWeights saved_;
  Progress progress_;
  TrainSummary summary_;
  int64_t evaluated_step_ = -1;
};

}  // namespace plait
