// Trainer: the loop over epochs and steps of one rank, with evaluation, metrics and export. Everything it needs is in RunInputs and Mesh.
// Rank rule: every rank of the mesh constructs and runs it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
#include "plait/train/step_report.h"
#include "plait/train/trace.h"
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
  std::vector<std::string> step_table;     // where the time of a step went, and MFU where it was asked for: lines for people
  int stop_signal = 0;                     // the run was asked to end and did after num_steps; output_folder is empty then
};

class Trainer {
 public:
  // Reads nothing yet: the model is made, and its weights loaded, by the first of run(), model() and step(), when the calls below have been
  // made. `say`: lines for people, called on rank 0 only. `control`: where the rank shows its step and phase, and is asked to stop.
  Trainer(const RunInputs& inputs, Mesh& mesh, at::Device device, const std::function<void(const std::string&)>& say,
          const RunControl& control = {});

  // The messages of this run, in the words of the settings; on every rank alike, before run(), model() and step(). They stand for settings:
  // axis tensor_parallel | data_parallel, style p2p | collective | auto (train.comm.priority). On CUDA the priority of an axis's streams is
  // fixed when its groups connect: RendezvousOptions::urgent_groups, which the program fills from the settings.
  void set_comm_priority(const std::string& axis, const std::string& style);
  // none | bf16 | fp16 | fp8 | powersgd | topk | nccl, for gradient buckets of at least `threshold_bytes` (train.comm.compression).
  // Both: Error(kUsage) for a word nobody knows, with the known ones; for what contradicts other settings; and when it comes too late.
  void enable_comm_compression(const std::string& algorithm, int64_t threshold_bytes = CommCompressionConfig{}.threshold_bytes);

  // Trains, evaluates, exports. Errors: Error(kNonFinite), kResource, and what communication throws.
  TrainSummary run();

  // For programs of their own.
  ParallelModel& model() { return settle(), *model_; }
  TrainStep& step() { return settle(), *step_; }

 private:
  // Makes model and step as config_ says, once; from here on it is too late for calls.
  void settle();
  // `settings`: what the call `call` stands for.
  void change_messages(const std::string& call, const std::vector<std::string>& settings, const CommConfig& wish);
  bool stops(int signal, int64_t step);
  void train_one_step(int64_t step, EpochOrder& order);
  bool evaluation_due(int64_t step) const;
  // True: training has stopped to get better.
  bool evaluate_now(int64_t step);
  void report_evaluation(int64_t step, const EvalResult& result);
  void save_now(int64_t step);
  StepInput step_input(const std::vector<int64_t>& rows, int64_t step) const;
  void report_empty_compression(const CompressionCost& cost);
  void write_step(int64_t step, const StepResult& result, const std::vector<int64_t>& rows, double flops);

  const RunInputs& in_;
  Config config_;  // in_.config, with the messages that were asked for by calls
  bool settled_ = false;
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
  std::optional<StepTrace> trace_;
  StepReport report_;
  double peak_flops_ = 0;         // of all ranks together; 0 = not measured
  std::optional<double> bubble_;  // predicted by the schedule; pipelines only
  SavedWeights saved_;
  Progress progress_;
  TrainSummary summary_;
};

}  // namespace plait
