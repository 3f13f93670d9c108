// Overlap switches and message styles in whole training runs: the switches change no bit; p2p over the data axis neither; p2p inside the
// layers changes the rounding of products only. And each switch does what it says.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "plait/comm/launch.h"
#include "tests/comm/recording_group.h"
#include "tests/train/lay_check.h"

namespace plait::testing {
namespace {

struct Pipeline {
  ScheduleKind schedule;
  int64_t virtual_size;
};

Config overlap_config(DType dtype, int64_t micro_batches, const Pipeline& pipeline = {ScheduleKind::k1F1B, 1}) {
  Config config = parity_config(dtype, OptimizerKind::kSGD, 0);
  config.train.distributed.gradient_accumulation_steps = micro_batches;
  config.train.distributed.schedule = pipeline.schedule;
  config.train.distributed.virtual_pipeline_size = pipeline.virtual_size;
  return config;
}

TEST(Overlap, SwitchesChangeNoBit) {
  Samples samples = d0_samples(61);
  const std::vector<std::pair<MeshLayout, Pipeline>> cases{{grid(2, 1, 2), {ScheduleKind::k1F1B, 1}},
                                                           {grid(1, 2, 2), {ScheduleKind::kInterleaved1F1B, 2}},
                                                           {grid(2, 2, 2), {ScheduleKind::kZeroBubbleH1, 1}},
                                                           {grid(2, 2, 1), {ScheduleKind::k1F1B, 1}}};
  for (const auto& [layout, pipeline] : cases)
    for (bool sequence : {false, true}) {
      if (sequence && layout.tp_size == 1) continue;
      Config config = overlap_config(DType::kFloat32, 4, pipeline);
      config.train.distributed.sequence_parallel = sequence;
      RunRecord all_on = run_layout(config, t0_shape(5), layout, samples, 2);
      for (bool DistributedConfig::*off :
           {&DistributedConfig::overlap_grad_reduce, &DistributedConfig::overlap_tensor_comm, &DistributedConfig::overlap_pipeline_comm}) {
        Config changed = config;
        changed.train.distributed.*off = false;
        expect_bit_equal(run_layout(changed, t0_shape(5), layout, samples, 2), all_on, cat(name_of(layout), sequence ? " sequence" : ""));
      }
    }
}

// With a pipeline too every bucket leaves before the end of the last backward, also where weight gradients have actions of their own.
TEST(Overlap, BucketsLeaveDuringTheLastBackward) {
  Samples samples = d0_samples(61);
  for (const Pipeline& pipeline :
       {Pipeline{ScheduleKind::kGPipe, 1}, Pipeline{ScheduleKind::k1F1B, 1}, Pipeline{ScheduleKind::kInterleaved1F1B, 2},
        Pipeline{ScheduleKind::kZeroBubbleH1, 1}, Pipeline{ScheduleKind::kZeroBubbleH2, 1}, Pipeline{ScheduleKind::kZeroBubbleV, 2}})
    for (bool overlap : {true, false}) {
      Config config = overlap_config(DType::kFloat32, 4, pipeline);
      config.train.distributed.overlap_grad_reduce = overlap;
      Hooks hooks;
      hooks.after_step = [&](Mesh& mesh, ParallelModel& model, TrainStep&, int64_t, const StepResult&) {
        auto buckets = static_cast<int64_t>(model.reducer->buckets().size());
        EXPECT_GT(buckets, 2);
        EXPECT_EQ(model.reducer->num_sent_early(), overlap ? buckets : 0)
            << "schedule " << static_cast<int>(pipeline.schedule) << " pipeline rank " << mesh.coordinate().pp;
      };
      run_layout(config, t0_shape(5), grid(2, 1, 2), samples, 1, hooks);
    }
}

// How many receives are posted at most before the first of them is waited for.
int64_t most_receives_ahead(const OperationLog& log) {
  int64_t open = 0, most = 0;
  for (const std::string& line : log) {
    if (line == "start recv") most = std::max(most, ++open);
    if (line == "wait recv") --open;
  }
  return most;
}

TEST(Overlap, ReceivesArePostedAheadOrWhenUsed) {
  Samples samples = d0_samples(61);
  for (bool overlap : {true, false})
    run_thread_ranks(grid(1, 1, 2), [&](Mesh& mesh) {
      auto log = std::make_shared<OperationLog>();
      auto same = [](ProcessGroup& group) { return ProcessGroupPtr(ProcessGroupPtr(), &group); };
      Mesh recorded(mesh.layout(), mesh.rank(), same(mesh.world()), same(mesh.data()),
                    std::make_shared<RecordingGroup>(mesh.pipeline(), log), same(mesh.tensor()));
      Config config = overlap_config(DType::kFloat32, 4);
      config.train.distributed.pipeline_parallel_size = 2;
      config.train.distributed.overlap_pipeline_comm = overlap;
      HeadOptions head{config.task, 0, 0.0};
      auto model = parallelize(config, t0_shape(4), head, recorded, at::kCPU, {.all_random = true});
      TrainStep step(config, *model, recorded, 1);
      step.run({own_micro_batches(samples, config, recorded), count_all_targets(samples, config.task), 0});
      EXPECT_GE(count_of(*log, "wait recv"), 4);
      EXPECT_EQ(most_receives_ahead(*log), overlap ? 2 : 1);
      if (overlap) return;
      for (size_t i = 0; i + 1 < log->size(); ++i) {
        if ((*log)[i] != "start recv") continue;
        size_t next = i + 1;
        while (next < log->size() && (*log)[next] == "wait send") ++next;  // one that is done
        EXPECT_EQ(next < log->size() ? (*log)[next] : "the end", "wait recv");
      }
    });
}

TEST(Styles, DataAxisP2pIsBitEqual) {
  Samples samples = d0_samples(61);
  for (DType dtype : {DType::kFloat32, DType::kBFloat16})
    for (const MeshLayout& layout : {grid(2, 1, 1), grid(3, 1, 1), grid(4, 1, 1), grid(2, 2, 2)}) {
      Config config = overlap_config(dtype, 2);
      RunRecord collective = run_layout(config, t0_shape(5), layout, samples, 2);
      config.train.comm.priority.data_parallel = CommStyle::kP2P;
      for (bool overlap : {true, false}) {
        config.train.distributed.overlap_grad_reduce = overlap;
        expect_bit_equal(run_layout(config, t0_shape(5), layout, samples, 2), collective, cat("p2p ", name_of(layout)));
      }
    }
}

// Six heads, so that three tensor ranks divide them.
ModelShape three_way_shape(int64_t num_layers) {
  ModelShape s = t0_shape(num_layers);
  s.hidden_size = 24;
  s.num_heads = 6;
  s.num_kv_heads = 3;
  s.ffn_size = 30;
  return s;
}

struct StyleCase {
  ModelShape (*shape)(int64_t);
  Task task;
  MeshLayout layout;
};

// Rows of a micro-batch (1 to 24 here and not multiples of anything) are cut into uneven and empty pieces.
TEST(Styles, TensorAxisP2pIsOneProcess) {
  Samples samples = d0_samples(61);
  const std::vector<StyleCase> cases{
      {t0_shape, Task::kTextGeneration, grid(1, 2, 1)},           {t0_shape, Task::kTextGeneration, grid(1, 4, 2)},
      {three_way_shape, Task::kTextGeneration, grid(1, 3, 1)},    {t0b_shape, Task::kTextGeneration, grid(2, 2, 2)},
      {t0b_shape, Task::kTextGeneration, grid(1, 4, 1)},          {tiny_bert_shape, Task::kTextClassification, grid(1, 2, 2)},
      {tiny_bert_shape, Task::kTextClassification, grid(2, 4, 1)}};
  for (const StyleCase& c : cases) {
    Config config = overlap_config(DType::kFloat64, 1);
    config.task = c.task;
    RunRecord reference = run_layout(config, c.shape(4), {1, 1, 1}, samples, 2);
    config.train.distributed.gradient_accumulation_steps = 5;
    for (bool sequence : {false, true})
      for (bool overlap : {true, false}) {
        config.train.comm.priority.tensor_parallel = CommStyle::kP2P;
        config.train.distributed.sequence_parallel = sequence;
        config.train.distributed.overlap_tensor_comm = overlap;
        expect_same_run(run_layout(config, c.shape(4), c.layout, samples, 2), reference, 1e-10, 1e-10,
                        cat("p2p ", name_of(c.layout), sequence ? " sequence" : "", overlap ? "" : " without overlap"));
      }
  }
}

TEST(Styles, TensorAxisP2pFollowsCollective) {
  Samples samples = d0_samples(61);
  for (DType dtype : {DType::kFloat32, DType::kBFloat16})
    for (bool sequence : {false, true})
      for (ScheduleKind schedule : {ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1}) {
        Config config = overlap_config(dtype, 4, {schedule, 1});
        config.train.distributed.sequence_parallel = sequence;
        RunRecord collective = run_layout(config, t0_shape(5), grid(1, 2, 2), samples, 2);
        config.train.comm.priority.tensor_parallel = CommStyle::kP2P;
        RunRecord p2p = run_layout(config, t0_shape(5), grid(1, 2, 2), samples, 2);
        double bound = dtype == DType::kFloat32 ? 1e-6 : 1e-2;
        expect_same_run(p2p, collective, bound, bound, sequence ? "sequence" : "plain");
        config.train.distributed.overlap_tensor_comm = false;
        expect_bit_equal(run_layout(config, t0_shape(5), grid(1, 2, 2), samples, 2), p2p, "p2p without overlap");
      }
}

}  // namespace
}  // namespace plait::testing
