// PipelineExecutor: runs the actions of one pipeline rank of a Schedule, whatever the schedule: forward, backward, deferred weight
// gradients, sends and receives. Sends are asynchronous; receives are posted a little ahead and block when their turn comes. Shapes are
// never communicated: every rank of a pipeline holds the same micro-batches. Empty micro-batches are skipped by all of its ranks alike.
// Nothing outlives run(): inputs are freed after their backward, outputs after their send. Where a backend cannot be asked for the end of a send
// (Gloo), that is when something comes from its receiver which the receiver's list has behind it.
// Rank rule: all ranks of the pipeline group run the same schedule over the same micro-batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "plait/comm/shared_buffer.h"
#include "plait/model/stage_model.h"
#include "plait/pipeline_parallel/border_codec.h"
#include "plait/plan/schedule.h"
#include "plait/tensor/profiler.h"

namespace plait {

struct PipelineRun {
  const std::vector<MicroBatch>* micro_batches = nullptr;  // one for each micro-batch of the schedule
  bool training = true;
  DropoutStream dropout;
  double gradient_seed = 1.0;  // factor on the loss sum: loss scale / number of targets of the global batch
  // Training: called once, after this rank's last forward and before the backwards that complete its gradients.
  std::function<void()> before_last_backward;
  // Called on the last stage with what each micro-batch gave.
  std::function<void(int64_t micro_batch, const StageOutput&)> on_output;
  StepProfiler* profiler = nullptr;  // gets each action's time; null = none
};

class PipelineExecutor {
 public:
  // `stages`: this rank's virtual stages in ascending order. References must outlive the executor.
  PipelineExecutor(const std::vector<StageModel*>& stages, ProcessGroup& pipeline, const ModelShape& shape, at::ScalarType compute_type,
                   at::Device device, WeightGradientQueue* weight_gradients);

  // Returns the sum of the losses of all micro-batches as a 1-element fp64 tensor on the rank of the last stage, 0 elsewhere.
  at::Tensor run(const Schedule& schedule, const PipelineRun& run);

  // What borders look like on the way; the same on all ranks of the pipeline. Without a call they go as they are.
  void set_border_codec(const BorderCodec& codec) { codec_ = codec; }
  const BorderCodec& border_codec() const { return codec_; }

  // Receives are posted ahead of their use (the default on CPUs), so that messages travel beside the computation; false: when used.
  // Neither changes a result. On devices transfers run in stream order, one at a time, when the schedule says so.
  void set_receive_ahead(bool ahead) { receive_ahead_ = ahead && device_.is_cpu(); }

 private:
  using Key = std::pair<int64_t, int64_t>;  // virtual stage, micro-batch
  struct Pending {                          // a forward whose backward is to come
    at::Tensor input;                       // leaf; undefined on the first stage
    at::Tensor root;                        // output or loss
  };
  struct Sending {
    WorkPtr work;
    at::Tensor tensor;       // as the border codec made it
    int64_t peer = -1;       // pipeline rank
    size_t place_there = 0;  // of the receive in the peer's list
  };
  struct Receiving {
    WorkPtr work;
    at::Tensor tensor;  // as the border codec made it
    int64_t rows = 0;   // of the border
  };

  void forward(const Schedule& schedule, const Action& action, const PipelineRun& run);
  void backward(const Schedule& schedule, const Action& action, const PipelineRun& run);
  void send(const Schedule& schedule, const Action& action);
  void receive(const Schedule& schedule, const Action& action);
  // Posts the next receives of `actions` from `begin` on, so that a message does not wait for its receiver.
  void post_receives(const Schedule& schedule, const std::vector<Action>& actions, size_t begin, const PipelineRun& run);
  void release_sent(bool wait);
  // Those that `peer` has received before the action at `place` of its list, which it has begun.
  void release_received(int64_t peer, size_t place);
  bool here(const Schedule& schedule, int64_t stage) const { return schedule.rank_of_stage(stage) == pipeline_.rank(); }
  StageModel& stage(int64_t virtual_stage) const;

  std::vector<StageModel*> stages_;
  ProcessGroup& pipeline_;
  ModelShape shape_;
  at::ScalarType compute_type_;
  at::Device device_;
  WeightGradientQueue* weight_gradients_;
  BorderCodec codec_;
  SharedPool borders_;  // where outputs lie that the next stage's rank reads in place
  bool receive_ahead_;

  std::map<Key, at::Tensor> inputs_;            // arrived activations, by the stage that uses them
  std::map<Key, at::Tensor> output_gradients_;  // arrived gradients, by the stage whose output they belong to
  std::map<Key, at::Tensor> to_send_;           // activations (stage, mb) and gradients (-1 - stage, mb) waiting for their send
  std::map<Key, Pending> pending_;
  std::vector<Sending> sending_;
  std::deque<Receiving> receiving_;  // posted, in the order of the schedule
  size_t next_receive_ = 0;          // actions before it have their receive posted
  at::Tensor loss_;
};

}  // namespace plait
