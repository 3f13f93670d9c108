// One small model on a pipeline of any ranks, for tests of the executor, with a pipeline group that writes down what is asked of it.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "plait/pipeline_parallel/executor.h"

namespace plait::testing {

inline ModelShape small_shape() {
  ModelShape s;
  s.family = Family::kLlama;
  s.model_type = "llama";
  s.vocab_size = 13, s.hidden_size = 8, s.num_layers = 4, s.num_heads = 2, s.num_kv_heads = 1, s.head_size = 4, s.ffn_size = 12,
  s.max_positions = 16;
  s.activation = Activation::kSilu;
  s.gated_ffn = s.rms_norm = s.rotary = true;
  s.qkv_bias = s.attention_out_bias = s.ffn_bias = false;
  s.initializer_range = 0.3;
  return s;
}

// One row of `length` tokens; 0 = an empty micro-batch.
inline MicroBatch row_of(int64_t length, int64_t salt) {
  MicroBatch b;
  b.positions = at::arange(length, at::kLong);
  b.input_ids = (b.positions * 5 + salt).remainder(13);
  b.targets = (b.positions * 5 + salt + 5).remainder(13);
  b.row_offsets = {0};
  if (length > 0) {
    b.targets[length - 1].fill_(kIgnoredTarget);
    b.num_targets = length - 1;
    b.row_offsets.push_back(length);
    b.sample_ids = {salt};
  }
  b.segment_offsets = b.row_offsets;
  return b;
}

// A pipeline group that writes down what the executor asks of it: "recv f0" and "recv b0" when a receive of micro-batch 0 (activations or
// gradients) is posted, "wait f0" when its turn comes, "send f0". It counts the sends whose work, and with it the tensor, is kept.
class NotedGroup : public ProcessGroup {
 public:
  // like_gloo: sends are done when they were waited for.
  NotedGroup(ProcessGroup& group, bool like_gloo) : group_(group), like_gloo_(like_gloo) {}
  std::vector<std::string> notes;
  int64_t held = 0, most_held = 0;

  int64_t rank() const override { return group_.rank(); }
  int64_t size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name(); }
  const std::vector<int64_t>& members() const override { return group_.members(); }
  WorkPtr all_reduce(at::Tensor tensor, ReduceOp op) override { return group_.all_reduce(tensor, op); }
  WorkPtr all_gather(at::Tensor output, at::Tensor input) override { return group_.all_gather(output, input); }
  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input) override { return group_.reduce_scatter(output, input); }
  WorkPtr broadcast(at::Tensor tensor, int64_t root) override { return group_.broadcast(tensor, root); }
  WorkPtr send(at::Tensor tensor, int64_t destination, int tag) override {
    notes.push_back("send " + message(tag));
    return std::make_shared<HeldWork>(*this, group_.send(tensor, destination, tag));
  }
  WorkPtr recv(at::Tensor tensor, int64_t source, int tag) override {
    notes.push_back("recv " + message(tag));
    return std::make_shared<NotedWork>(*this, group_.recv(tensor, source, tag), "wait " + message(tag));
  }
  void barrier() override { group_.barrier(); }

 private:
  struct NotedWork : Work {
    NotedWork(NotedGroup& group, WorkPtr work, std::string note) : group_(group), work_(std::move(work)), note_(std::move(note)) {}
    void wait() override {
      group_.notes.push_back(note_);
      work_->wait();
    }
    bool done() override { return work_->done(); }
    NotedGroup& group_;
    WorkPtr work_;
    std::string note_;
  };
  struct HeldWork : Work {
    HeldWork(NotedGroup& group, WorkPtr work) : group_(group), work_(std::move(work)) {
      group_.most_held = std::max(group_.most_held, ++group_.held);
    }
    ~HeldWork() override { --group_.held; }
    void wait() override {
      work_->wait();
      waited_for_ = true;
    }
    bool done() override { return group_.like_gloo_ ? waited_for_ : work_->done(); }
    NotedGroup& group_;
    WorkPtr work_;
    bool waited_for_ = false;
  };
  // Of a pipeline of two stages.
  static std::string message(int tag) { return cat(tag & 1 ? "b" : "f", tag >> 1); }

  ProcessGroup& group_;
  bool like_gloo_;
};

struct RankResult {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
  std::vector<int64_t> outputs;  // micro-batches in the order the last stage finished them
  int64_t announced = 0;
};

// This rank's part of `schedule` over rows of `lengths` tokens; `pipeline` in place of the mesh's group.
inline RankResult run_rank(Mesh& mesh, ProcessGroup& pipeline, const Schedule& schedule, const std::vector<int64_t>& lengths,
                           bool training = true) {
  RankResult result;
  ModelShape shape = small_shape();
  ParameterStore store;
  WeightGradientQueue queue;
  TensorParallelContext context{&mesh.tensor(), false, &queue};
  std::vector<std::unique_ptr<StageModel>> models;
  std::vector<StageModel*> stages;
  int64_t layers = shape.num_layers / schedule.num_stages;
  for (int64_t s = 0; s < schedule.num_stages; ++s) {
    if (schedule.rank_of_stage(s) != mesh.rank()) continue;
    models.push_back(
        std::make_unique<StageModel>(store, shape, StageSpec{s, schedule.num_stages, s * layers, layers}, HeadOptions{}, context, nullptr));
    stages.push_back(models.back().get());
  }
  store.allocate(at::kDouble, at::kCPU);
  store.initialize(5, true);
  for (auto* stage : stages) stage->bind();
  PipelineExecutor executor(stages, pipeline, shape, at::kDouble, at::kCPU, &queue);
  std::vector<MicroBatch> batches;
  for (size_t m = 0; m < lengths.size(); ++m) batches.push_back(row_of(lengths[m], static_cast<int64_t>(m)));
  PipelineRun run;
  run.micro_batches = &batches;
  run.training = training;
  run.gradient_seed = 0.25;
  run.before_last_backward = [&] { ++result.announced; };
  run.on_output = [&](int64_t m, const StageOutput&) { result.outputs.push_back(m); };
  result.loss = executor.run(schedule, run).item<double>();
  EXPECT_TRUE(queue.empty());
  for (const auto& p : store.parameters()) {
    EXPECT_EQ(p->pending_uses, 0) << p->name;
    result.gradients[p->name] = p->gradient.clone();
  }
  return result;
}

}  // namespace plait::testing
