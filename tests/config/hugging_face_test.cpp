#include "plait/config/hugging_face.h"

#include <gtest/gtest.h>

#include "tests/config/settings_text.h"

namespace plait {

using testing::contains;
using testing::has_notice;
using testing::load_flags;
using testing::load_text;
using testing::Loaded;

TEST(HuggingFace, JsonWithEveryRegularName) {
  Loaded loaded = load_text(R"({
  "output_dir": "out", "num_train_epochs": 2.0, "max_steps": -1,
  "per_device_train_batch_size": 4, "per_device_eval_batch_size": 16, "gradient_accumulation_steps": 2,
  "learning_rate": 2e-5, "weight_decay": 0.01, "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-07, "max_grad_norm": 0.5,
  "lr_scheduler_type": "cosine", "warmup_steps": 0.1, "seed": 7, "data_seed": 7, "bf16": true, "fp16": false, "logging_steps": 10,
  "eval_strategy": "steps", "eval_steps": 50, "save_strategy": "no", "save_steps": 500, "save_total_limit": null,
  "load_best_model_at_end": true, "metric_for_best_model": "eval_f1", "greater_is_better": true, "label_smoothing_factor": 0.1,
  "gradient_checkpointing": false, "dataloader_num_workers": 2, "dataloader_drop_last": false, "disable_tqdm": true, "report_to": ["none"],
  "run_name": "mine", "resume_from_checkpoint": null, "deepspeed": null, "fsdp": "", "push_to_hub": false, "optim": "adamw_torch",
  "data_parallel_size": 2, "model_parallel_size": 2, "pipeline_parallel_size": 2,
  "model": "bert", "train_file": "t.jsonl"
})",
                            "hf.json", {}, 8);
  ASSERT_EQ(loaded.error, "");
  const auto& t = loaded.config.train;
  EXPECT_TRUE(contains(t.work_dir, "/out"));
  EXPECT_EQ(t.max_epochs, 2);
  EXPECT_EQ(t.max_steps, 0);
  EXPECT_EQ(t.batch_size, 16);
  EXPECT_EQ(t.per_device_train_batch_size, 4);
  EXPECT_EQ(loaded.config.evaluation.per_device_batch_size, 16);
  EXPECT_EQ(t.optimizer.lr, 2e-5);
  EXPECT_EQ(t.optimizer.beta1, 0.8);
  EXPECT_EQ(t.optimizer.beta2, 0.95);
  EXPECT_EQ(t.optimizer.eps, 1e-7);
  EXPECT_EQ(t.clip_grad, 0.5);
  EXPECT_EQ(t.lr_scheduler.type, LrSchedulerKind::kCosine);
  EXPECT_EQ(t.lr_scheduler.warmup_ratio, 0.1);
  EXPECT_EQ(t.seed, 7);
  EXPECT_EQ(t.dtype, DType::kBFloat16);
  EXPECT_EQ(t.logging_steps, 10);
  EXPECT_EQ(t.label_smoothing, 0.1);
  EXPECT_FALSE(t.progress_bar);
  EXPECT_EQ(loaded.config.evaluation.strategy, EvalStrategy::kSteps);
  EXPECT_EQ(loaded.config.evaluation.interval, 50);
  EXPECT_EQ(loaded.config.evaluation.metrics, (std::vector<Metric>{Metric::kF1, Metric::kAccuracy, Metric::kLoss}));
  EXPECT_TRUE(has_notice(loaded, "save_steps 500 (hf.json:6) has no effect"));
  EXPECT_TRUE(has_notice(loaded, "dataloader_num_workers 2"));
  EXPECT_TRUE(has_notice(loaded, "output_best/"));
  EXPECT_TRUE(has_notice(loaded, "run_name mine"));
}

TEST(HuggingFace, ItsOwnDefaults) {
  Loaded loaded = load_text("output_dir: out\n", "hf.yaml", {}, 2);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.seed, 42);
  EXPECT_EQ(loaded.config.train.batch_size, 16);
  EXPECT_EQ(loaded.config.train.max_epochs, 3);
  EXPECT_EQ(loaded.config.train.optimizer.lr, 5e-5);
  EXPECT_EQ(loaded.config.train.clip_grad, 1.0);
  EXPECT_EQ(loaded.config.evaluation.strategy, EvalStrategy::kNo);
  EXPECT_TRUE(has_notice(loaded, "save_strategy is not given"));
  // Flags alone, and flags over a native file (whose defaults then hold).
  EXPECT_EQ(load_text("", "x.yaml", {"", {{"output_dir", "o"}}, {}}).config.train.seed, 0);
  Config flags_only = load_config({"", {{"output_dir", "o"}, {"learning-rate", "1e-3"}}, {}}, 0, nullptr);
  EXPECT_EQ(flags_only.train.seed, 42);
  EXPECT_EQ(flags_only.train.optimizer.lr, 1e-3);
  EXPECT_EQ(load_config({"", {{"model", "m"}}, {}}, 0, nullptr).train.seed, 0);
}

TEST(HuggingFace, OlderNamesWithANotice) {
  Loaded loaded = load_text("output_dir: o\nevaluation_strategy: epoch\nwarmup_ratio: 0.2\neval_steps: 5\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.evaluation.strategy, EvalStrategy::kEpoch);
  EXPECT_EQ(loaded.config.evaluation.interval, 1);
  EXPECT_EQ(loaded.config.train.lr_scheduler.warmup_ratio, 0.2);
  EXPECT_TRUE(has_notice(loaded, "evaluation_strategy (hf.yaml:2) is a Hugging Face v4 name"));
  EXPECT_TRUE(has_notice(loaded, "warmup_ratio (hf.yaml:3) is a Hugging Face v4 name"));
  EXPECT_TRUE(has_notice(loaded, "eval_steps 5 (hf.yaml:4) has no effect with eval_strategy epoch"));
  loaded = load_text("output_dir: o\neval_strategy: steps\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.evaluation.interval, 500);
}

TEST(HuggingFace, WeightsDuringTraining) {
  Loaded loaded = load_text("output_dir: o\nsave_only_model: true\nsave_strategy: epoch\nsave_total_limit: 3\nsave_steps: 5\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.save.strategy, SaveStrategy::kEpoch);
  EXPECT_EQ(loaded.config.train.save.interval, 1);
  EXPECT_EQ(loaded.config.train.save.keep, 3);
  EXPECT_TRUE(has_notice(loaded, "save_steps 5 (hf.yaml:5) has no effect with save_strategy epoch"));
  EXPECT_TRUE(has_notice(loaded, "weights go to weights/step_N"));
  loaded = load_text("output_dir: o\nsave_only_model: true\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.save.strategy, SaveStrategy::kSteps);
  EXPECT_EQ(loaded.config.train.save.interval, 500);
  EXPECT_TRUE(has_notice(loaded, "weights every 500 steps"));
  loaded = load_text("output_dir: o\nsave_only_model: true\nsave_strategy: steps\nsave_steps: 20\nsave_total_limit: null\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.save.interval, 20);
  EXPECT_EQ(loaded.config.train.save.keep, 0);
  loaded = load_text("output_dir: o\nsave_only_model: true\nsave_strategy: 'no'\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.save.strategy, SaveStrategy::kNo);
}

TEST(HuggingFace, Tensorboard) {
  for (const char* value : {"tensorboard", "[tensorboard]", "\n  - tensorboard"}) {
    Loaded loaded = load_text(std::string("output_dir: /r/o\nlogging_steps: 7\nreport_to: ") + value + "\n", "hf.yaml");
    ASSERT_EQ(loaded.error, "") << value;
    EXPECT_EQ(loaded.config.train.tensorboard.dir, "/r/o/runs");
    EXPECT_EQ(loaded.config.train.tensorboard.interval, 7);
  }
  Loaded loaded = load_text("output_dir: o\nreport_to: tensorboard\nlogging_dir: /l\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.tensorboard.dir, "/l");
  EXPECT_EQ(loaded.config.train.tensorboard.interval, 1);
  loaded = load_text("output_dir: o\nlogging_dir: /l\nreport_to: none\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.tensorboard.dir, "");
  EXPECT_TRUE(has_notice(loaded, "logging_dir /l (hf.yaml:2) has no effect"));
  // A work_dir of the command line counts from the current folder, and so does what lies in it.
  loaded = load_text("per_device_train_batch_size: 1\nreport_to: tensorboard\n", "deep/hf.yaml", {"", {{"work_dir", "w"}}, {}});
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.tensorboard.dir, loaded.config.train.work_dir + "/runs");
  loaded = load_text("per_device_train_batch_size: 1\nreport_to: tensorboard\n", "deep/hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.tensorboard.dir, loaded.config.train.work_dir + "/runs");
}

TEST(HuggingFace, PolynomialEndsWhereHuggingFacesDoes) {
  Loaded loaded = load_text("output_dir: o\nlr_scheduler_type: polynomial\nwarmup_steps: 2\n", "hf.yaml");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.lr_scheduler.type, LrSchedulerKind::kPolynomial);
  EXPECT_EQ(loaded.config.train.lr_scheduler.min_lr, 1e-7);
}

TEST(HuggingFace, NamesOfWholeDumps) {
  Loaded loaded = load_text(R"({"output_dir": "o", "do_eval": true, "do_predict": false, "logging_first_step": false, "ddp_backend": null,
  "ddp_find_unused_parameters": false, "ddp_timeout": 600, "full_determinism": false, "save_safetensors": true, "fp16_full_eval": false,
  "bf16_full_eval": false, "log_level": "passive", "logging_strategy": "steps", "optim_args": null, "label_names": null,
  "dataloader_pin_memory": true, "hub_model_id": "mine", "include_inputs_for_metrics": false, "lr_scheduler_kwargs": {},
  "accelerator_config": {"split_batches": false}, "past_index": -1, "debug": [], "fsdp_min_num_params": 0,
  "do_train": false, "eval_strategy": "epoch", "evaluation_strategy": null, "tpu_metrics_debug": false, "dispatch_batches": null})",
                            "hf.json");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.comm_timeout_seconds, 600);
  EXPECT_TRUE(has_notice(loaded, "log_level (hf.json:3) has no effect: "));
  EXPECT_TRUE(has_notice(loaded, "accelerator_config (hf.json:5) has no effect: "));
  EXPECT_FALSE(has_notice(loaded, "ddp_backend"));
  loaded = load_text("output_dir: o\nfp16_full_eval: true\n");
  EXPECT_TRUE(contains(loaded.error, "fp16_full_eval true (config.yaml:2): evaluation computes as training does; accepted: false"));
  loaded = load_text("output_dir: o\nlr_scheduler_kwargs: {a: 1}\n");
  EXPECT_TRUE(loaded.error.ends_with("; accepted: {}")) << loaded.error;
  loaded = load_text("output_dir: o\nlogging_steps: 0.1\n");
  EXPECT_TRUE(contains(loaded.error, "logging_steps 0.1 (config.yaml:2) is a share of all steps")) << loaded.error;
  EXPECT_TRUE(contains(loaded.error, "nearest valid value 1"));
  loaded = load_text("output_dir: o\nnum_train_epochs: 2.5\n");
  EXPECT_TRUE(contains(loaded.error,
                       "num_train_epochs 2.5 (config.yaml:2) is not a whole number of epochs; nearest valid values 2 and 3, "
                       "or max_steps"))
      << loaded.error;
  loaded = load_text("output_dir: o\ntrain_batch_size: 8\n");
  EXPECT_TRUE(contains(loaded.error, "unknown key train_batch_size (config.yaml:2)")) << loaded.error;
  EXPECT_TRUE(contains(loaded.error, "batch_size")) << loaded.error;
}

TEST(HuggingFace, Refusals) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"learning_rat: 1", "unknown key learning_rat (hf.yaml:2); nearest known name: learning_rate"},
      {"num_train_epochs: 0.5", "num_train_epochs 0.5 (hf.yaml:2) is not a whole number of epochs; nearest valid value 1, or max_steps"},
      {"save_strategy: steps", "checkpoints during training are not available yet; accepted: no, best; save_only_model: true saves"},
      {"save_steps: 100", "save_steps 100 (hf.yaml:2): checkpoints"},
      {"save_strategy: sometimes", "is not one of no, epoch, steps, best"},
      {"gradient_checkpointing: true", "gradient_checkpointing true (hf.yaml:2): recomputation is not available yet; accepted: false"},
      {"dataloader_drop_last: true", "every row"},
      {"report_to: wandb", "report_to wandb (hf.yaml:2): wandb is not available; accepted: none, tensorboard"},
      {"report_to: [tensorboard, wandb]", "wandb is not available"},
      {"report_to: tensorboard\nlogging_dir: l\ntrain.tensorboard.dir: d", "train.tensorboard.dir is given twice"},
      {"save_only_model: true\nsave_strategy: sometimes", "is not one of no, epoch, steps, best"},
      {"save_only_model: true\nsave_steps: 0.1", "save_steps 0.1 (hf.yaml:3) is a share of all steps"},
      {"save_only_model: true\ntrain.save.keep: 2\nsave_total_limit: 3", "train.save.keep is given twice"},
      {"save_only_model: maybe", "save_only_model maybe (hf.yaml:2) is not true or false"},
      {"lr_scheduler_type: inverse_sqrt", "lr_scheduler_type inverse_sqrt (hf.yaml:2): Hugging Face's rises to learning_rate"},
      {"resume_from_checkpoint: runs/x", "not available yet"},
      {"push_to_hub: true", "not available"},
      {"deepspeed: nowhere/ds.json", "settings file nowhere/ds.json does not exist"},
      {"data_seed: 3", "data_seed 3 (hf.yaml:2) differs from seed 42"},
      {"optim: adafactor", "optim adafactor (hf.yaml:2) is not available"},
      {"load_best_model_at_end: true", "needs an evaluation"},
      {"metric_for_best_model: bleu", "metric_for_best_model bleu (hf.yaml:2) is not one of accuracy"},
      {"metric_for_best_model: loss\ngreater_is_better: true", "contradicts loss, which is better when smaller"},
      {"lr_scheduler_type: constant\nwarmup_steps: 5", "nearest valid value constant_with_warmup"},
      {"lr_scheduler_type: cosine_with_restarts", "is not one of linear, cosine, constant"},
      {"fp16: true\nbf16: true", "contradicts"},
      {"model_parallel_size: {vision: 2}", "not available yet"},
      {"eval_strategy: steps\neval_steps: 2\nevaluation_strategy: steps", "is given twice"},
      {"learning_rate: 1\nlearning_rate: 2", "duplicate key learning_rate"},
  };
  for (const auto& [line, piece] : table) {
    Loaded loaded = load_text("output_dir: o\n" + line + "\n", "hf.yaml");
    EXPECT_EQ(loaded.code, 2) << line;
    EXPECT_TRUE(contains(loaded.error, piece)) << line << "\n  message: " << loaded.error << "\n  without: " << piece;
  }
  // A flag can undo what the file asks for.
  EXPECT_EQ(load_text("output_dir: o\nsave_strategy: steps\n", "hf.yaml", {"", {{"save_strategy", "no"}}, {}}).error, "");
}

}  // namespace plait
