#include "plait/config/deepspeed.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/config/settings_text.h"

namespace plait {

using testing::contains;
using testing::has_notice;
using testing::load_text;
using testing::Loaded;

const CommandLine kInputs{"", {{"model", "m"}, {"train_file", "t.jsonl"}}, {}};

TEST(DeepSpeed, WholeFile) {
  Loaded loaded = load_text(R"({
  "train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto", "gradient_clipping": 1.0,
  "steps_per_print": 10, "wall_clock_breakdown": false,
  "zero_optimization": {"stage": 0, "overlap_comm": true, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "none"}},
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1},
  "bf16": {"enabled": false},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 1e-5, "warmup_max_lr": 1e-4, "warmup_num_steps": 20, "total_num_steps": 200, "warmup_type": "linear"}},
  "activation_checkpointing": {"partition_activations": false, "number_checkpoints": null},
  "flops_profiler": {"enabled": false, "profile_step": 1}, "tensor_parallel": {"autotp_size": 2}, "pipeline": {"stages": 2, "partition": "best"},
  "tensorboard": {"enabled": true, "output_path": "events", "job_name": "x"}
})",
                            "ds.json", kInputs, 8);
  ASSERT_EQ(loaded.error, "");
  const auto& t = loaded.config.train;
  EXPECT_EQ(t.distributed.data_parallel_size, 2);
  EXPECT_EQ(t.distributed.model_parallel_size, 2);
  EXPECT_EQ(t.distributed.pipeline_parallel_size, 2);
  EXPECT_EQ(t.batch_size, 32);
  EXPECT_EQ(t.per_device_train_batch_size, 4);
  EXPECT_EQ(t.distributed.gradient_accumulation_steps, 4);
  EXPECT_EQ(t.clip_grad, 1.0);
  EXPECT_EQ(t.logging_steps, 10);
  EXPECT_EQ(t.dtype, DType::kFloat16);
  EXPECT_TRUE(t.loss_scale.dynamic);
  EXPECT_EQ(t.loss_scale.init_scale, 4096);
  EXPECT_EQ(t.loss_scale.growth_interval, 500);
  EXPECT_EQ(t.optimizer.beta2, 0.95);
  EXPECT_EQ(t.lr_scheduler.type, LrSchedulerKind::kLinear);
  EXPECT_EQ(t.lr_scheduler.warmup_steps, 20);
  EXPECT_NEAR(t.lr_scheduler.warmup_start_factor, 0.1, 1e-12);
  EXPECT_EQ(t.max_steps, 200);
  EXPECT_TRUE(contains(t.tensorboard.dir, "/events"));
}

TEST(DeepSpeed, DefaultsAndSchedules) {
  Loaded loaded =
      load_text(R"({"train_batch_size": "auto", "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 0}})", "ds.json", kInputs);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.clip_grad, 0);
  EXPECT_EQ(loaded.config.train.lr_scheduler.type, LrSchedulerKind::kConstant);
  EXPECT_EQ(loaded.config.train.dtype, DType::kFloat32);
  loaded = load_text(R"({"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale": 128, "loss_scale_window": 9},
    "optimizer": {"type": "Adam", "params": {"lr": 0.001}}, "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.1, "cos_min_ratio": 0.01}}})",
                     "ds.json", kInputs);
  ASSERT_EQ(loaded.error, "");
  EXPECT_FALSE(loaded.config.train.loss_scale.dynamic);
  EXPECT_EQ(loaded.config.train.loss_scale.init_scale, 128);
  EXPECT_EQ(loaded.config.train.lr_scheduler.type, LrSchedulerKind::kCosine);
  EXPECT_NEAR(loaded.config.train.lr_scheduler.min_lr, 1e-5, 1e-15);
  EXPECT_EQ(loaded.config.train.lr_scheduler.warmup_steps, 1000);
  EXPECT_TRUE(has_notice(loaded, "rises along a line"));
  // Flags decide what is "auto", and replace the file's schedule as a whole.
  CommandLine flags = kInputs;
  flags.flags.insert(flags.flags.end(), {{"learning_rate", "2e-4"}, {"warmup_steps", "10"}});
  loaded = load_text(
      R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}})",
      "ds.json", flags);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.lr_scheduler.warmup_steps, 10);
  EXPECT_EQ(loaded.config.train.optimizer.lr, 2e-4);
}

TEST(DeepSpeed, NamedByHuggingFaceArguments) {
  std::string folder = ::testing::TempDir() + "deepspeed_of_hugging_face";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/ds.json") << R"({"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": true, "initial_scale_power": 10},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "weight_decay": "auto"}}, "gradient_clipping": 0.5})";
  const std::string text = "output_dir: o\nlearning_rate: 0.00002\nper_device_train_batch_size: 3\nfp16: true\ndeepspeed: ds.json\n";
  Loaded loaded = load_text(text, folder + "/hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.dtype, DType::kFloat16);
  EXPECT_EQ(loaded.config.train.loss_scale.init_scale, 1024);
  EXPECT_EQ(loaded.config.train.clip_grad, 0.5);
  EXPECT_EQ(loaded.config.train.batch_size, 3);
  EXPECT_EQ(loaded.config.train.lr_scheduler.type, LrSchedulerKind::kLinear);
  loaded = load_text("output_dir: o\nlearning_rate: 0.1\ndeepspeed: ds.json\n", folder + "/hf.yaml");
  EXPECT_TRUE(contains(loaded.error, "train.optimizer.params.lr is given twice: as learning_rate")) << loaded.error;
  loaded = load_text("output_dir: o\n", "hf.yaml", {"", {{"deepspeed", folder + "/ds.json"}}, {}});
  EXPECT_EQ(loaded.config.train.optimizer.lr, 2e-5);
  loaded = load_text("output_dir: o\ndeepspeed: {zero_optimization: {stage: 3}}\n", "hf.yaml");
  EXPECT_TRUE(contains(loaded.error, "zero_stage 3 (hf.yaml:2)")) << loaded.error;
}

TEST(DeepSpeed, LargestLossScale) {
  Loaded loaded = load_text(R"({"train_batch_size": 8, "fp16": {"enabled": true, "initial_scale_power": 32}})", "ds.json", kInputs);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.loss_scale.init_scale, 16777216);
  EXPECT_TRUE(has_notice(loaded, "fp16.initial_scale_power 32 (ds.json:1) is taken as 24"));
  loaded = load_text(R"({"train_batch_size": 8, "fp16": {"enabled": true, "initial_scale_power": 24}})", "ds.json", kInputs);
  EXPECT_EQ(loaded.config.train.loss_scale.init_scale, 16777216);
  EXPECT_FALSE(has_notice(loaded, "is taken as"));
}

TEST(DeepSpeed, WarmupLongerThanTheRun) {
  Loaded loaded = load_text(
      R"({"train_batch_size": 8, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 30, "total_num_steps": 20}}})",
      "ds.json", kInputs);
  ASSERT_EQ(loaded.error, "");
  EXPECT_TRUE(has_notice(loaded, "warmup_steps 30 (ds.json:1) is more than max_steps 20 (ds.json:1): the learning rate never reaches lr"));
}

TEST(DeepSpeed, AdamIsAdamWUnlessToldOtherwise) {
  auto type_of = [](const std::string& optimizer) {
    Loaded loaded = load_text("{\"train_batch_size\": 8, \"optimizer\": " + optimizer + "}", "ds.json", kInputs);
    EXPECT_EQ(loaded.error, "") << optimizer;
    EXPECT_EQ(loaded.config.train.optimizer.weight_decay, 0.1) << optimizer;
    return loaded.config.train.optimizer.type;
  };
  EXPECT_EQ(type_of(R"({"type": "Adam", "params": {"weight_decay": 0.1}})"), OptimizerKind::kAdamW);
  EXPECT_EQ(type_of(R"({"type": "Adam", "params": {"adam_w_mode": true, "weight_decay": 0.1}})"), OptimizerKind::kAdamW);
  EXPECT_EQ(type_of(R"({"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}})"), OptimizerKind::kAdam);
  EXPECT_EQ(type_of(R"({"type": "Adam", "params": {"torch_adam": true, "weight_decay": 0.1}})"), OptimizerKind::kAdamW);
  EXPECT_EQ(type_of(R"({"type": "AdamW", "params": {"adam_w_mode": false, "weight_decay": 0.1}})"), OptimizerKind::kAdamW);
}

TEST(DeepSpeed, Refusals) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {R"("zero_optimization": {"stage": 2})",
       "zero_stage 2 (ds.json:1): sharded optimizer states are not available yet; nearest valid value 0"},
      {R"("zero_optimization": {"stage": 0, "offload_param": {"device": "cpu"}})",
       "zero_optimization.offload_param.device cpu (ds.json:1): offloading"},
      {R"("zero_optimization": {"stages": 0})",
       "ds.json:1: unknown key zero_optimization.stages; nearest known key: zero_optimization.stage"},
      {R"("gradient_cliping": 1)", "ds.json:1: unknown key gradient_cliping; nearest known key: gradient_clipping"},
      {R"("activation_checkpointing": {"partition_activations": true})", "activation checkpointing is not available yet"},
      {R"("flops_profiler": {"enabled": true})", "the FLOPS profiler is not available"},
      {R"("compression_training": {"weight_quantization": {}})", "compression is not available"},
      {R"("amp": {"enabled": true, "opt_level": "O1"})", "Apex"},
      {R"("optimizer": {"type": "OneBitAdam"})", "optimizer.type OneBitAdam (ds.json:1): this optimizer is not available; one of AdamW"},
      {R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "amsgrad": true}})", "this variant is not available"},
      {R"("scheduler": {"type": "OneCycle"})", "one of WarmupLR, WarmupDecayLR, WarmupCosineLR"},
      {R"("scheduler": {"type": "WarmupLR", "params": {"warmup_type": "log"}})", "nearest valid value linear"},
      {R"("optimizer": {"params": {"lr": 1}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2}})",
       "warmup_max_lr 2 (ds.json:1) contradicts optimizer.params.lr 1"},
      {R"("fp16": {"enabled": true}, "bf16": {"enabled": true})", "contradicts"},
      {R"("train_micro_batch_size_per_gpu": 3)", "the batch does not come out"},
      {R"("communication_data_type": "fp8")", "gradients travel as fp32, fp16 or bf16; nearest valid value fp32"},
      {R"("set_comm_priority": {"tensor_parallel": "ring"})",
       "set_comm_priority.tensor_parallel (train.comm.priority.tensor_parallel) ring (ds.json:1) is not one of auto, p2p"},
      {R"("fp16": true)", "must be a section: {enabled: true}"},
  };
  for (const auto& [line, piece] : table) {
    Loaded loaded = load_text("{\"train_batch_size\": 8, " + line + "}", "ds.json", kInputs);
    EXPECT_EQ(loaded.code, 2) << line;
    EXPECT_TRUE(contains(loaded.error, piece)) << line << "\n  message: " << loaded.error << "\n  without: " << piece;
  }
}

TEST(DeepSpeed, MessagesOnTheWire) {
  auto load = [](const std::string& more) {
    Loaded loaded = load_text("{\"train_batch_size\": 8, \"pipeline\": {\"stages\": 1}, " + more + "}", "ds.json", kInputs, 2);
    EXPECT_EQ(loaded.error, "") << more;
    return loaded.config.train.comm;
  };
  for (const char* word : {"bf16", "bfp16", "bfloat16"}) {
    CommConfig comm = load(std::string(R"("communication_data_type": ")") + word + "\"");
    EXPECT_EQ(comm.compression.algorithm, GradientCompression::kNccl);
    EXPECT_EQ(comm.compression.threshold_bytes, 0);
  }
  EXPECT_EQ(load(R"("communication_data_type": "fp16")").compression.algorithm, GradientCompression::kFloat16);
  EXPECT_EQ(load(R"("communication_data_type": "fp32")").compression.algorithm, GradientCompression::kNone);
  CommConfig comm =
      load(R"("set_comm_priority": ["data_parallel", "p2p"], "enable_comm_compression": {"algorithm": "fp8", "threshold": 4096})");
  EXPECT_EQ(comm.priority.data_parallel, CommStyle::kP2P);
  EXPECT_EQ(comm.compression.algorithm, GradientCompression::kFloat8);
  EXPECT_EQ(comm.compression.threshold_bytes, 4096);
}

}  // namespace plait
