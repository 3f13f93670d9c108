#include "plait/config/modelscope.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/config/settings_text.h"

namespace plait {

using testing::contains;
using testing::has_notice;
using testing::load_flags;
using testing::load_text;
using testing::Loaded;

const char* const kHubFile = R"({
  "framework": "pytorch",
  "task": "text-classification",
  "pipeline": {"type": "text-classification"},
  "model": {"type": "text-classification", "path": "bert", "backbone": {"type": "bert", "prefix": "encoder", "hidden_size": 768}},
  "dataset": {"train": {"file": "t.jsonl", "labels": ["no", "yes"]}, "val": {"file": "v.jsonl"}},
  "preprocessor": {"type": "sen-cls-tokenizer", "first_sequence": "sentence", "label": "gold", "sequence_length": 64},
  "train": {
    "work_dir": "out", "max_epochs": 10,
    "dataloader": {"batch_size_per_gpu": 4, "workers_per_gpu": 1, "shuffle": true},
    "optimizer": {"type": "AdamW", "lr": 3e-05, "options": {"cumulative_iters": 2, "grad_clip": {"max_norm": 2.0}}},
    "lr_scheduler": {"type": "StepLR", "step_size": 2, "options": {"warmup": {"type": "LinearWarmup", "warmup_iters": 2}}},
    "hooks": [{"type": "MegatronHook"}, {"type": "TextLoggerHook", "interval": 7}, {"type": "IterTimerHook"},
              {"type": "EvaluationHook", "interval": 2}, {"type": "CheckpointHook", "interval": 3, "max_checkpoint_num": 4},
              {"type": "BestCkptSaverHook", "metric_key": "f1", "rule": "max"},
              {"type": "EarlyStopHook", "metric_key": "f1", "patience": 2, "min_delta": 0.01},
              {"type": "TorchAMPOptimizerHook", "loss_scale": 512.0}]
  },
  "evaluation": {"dataloader": {"batch_size_per_gpu": 8, "workers_per_gpu": 1, "shuffle": false}, "metrics": ["accuracy", "f1"]},
  "megatron": {"world_size": 8, "tensor_model_parallel_size": 2, "checkpoint_tensor_model_parallel_size": 1},
  "something_new": {"a": 1}
})";

TEST(ModelScope, HubFile) {
  Loaded loaded = load_text(kHubFile, "configuration.json", {}, 8);
  ASSERT_EQ(loaded.error, "");
  const auto& t = loaded.config.train;
  EXPECT_TRUE(contains(t.work_dir, "/out"));
  EXPECT_EQ(t.distributed.data_parallel_size, 4);
  EXPECT_EQ(t.distributed.model_parallel_size, 2);
  EXPECT_EQ(t.distributed.gradient_accumulation_steps, 2);
  EXPECT_EQ(t.per_device_train_batch_size, 4);
  EXPECT_EQ(t.batch_size, 32);
  EXPECT_EQ(t.max_epochs, 10);
  EXPECT_EQ(t.seed, 42);
  EXPECT_EQ(t.optimizer.lr, 3e-5);
  EXPECT_EQ(t.optimizer.weight_decay, 0.01);
  EXPECT_TRUE(t.optimizer.decay_all);
  EXPECT_EQ(t.clip_grad, 2.0);
  EXPECT_EQ(t.lr_scheduler.type, LrSchedulerKind::kStep);
  EXPECT_EQ(t.lr_scheduler.step_size, 2);
  EXPECT_TRUE(t.lr_scheduler.by_epoch);
  EXPECT_EQ(t.lr_scheduler.warmup_ratio, 0.2);
  EXPECT_EQ(t.lr_scheduler.warmup_start_factor, 0.1);
  EXPECT_EQ(t.dtype, DType::kFloat16);
  EXPECT_FALSE(t.loss_scale.dynamic);
  EXPECT_EQ(t.loss_scale.init_scale, 512);
  EXPECT_EQ(t.logging_steps, 7);
  EXPECT_EQ(t.save.strategy, SaveStrategy::kEpoch);
  EXPECT_EQ(t.save.interval, 3);
  EXPECT_EQ(t.save.keep, 4);
  EXPECT_EQ(t.early_stop.patience, 2);
  EXPECT_EQ(t.early_stop.min_delta, 0.01);
  EXPECT_EQ(loaded.config.preprocessor.sequence_length, 64);
  EXPECT_EQ(loaded.config.dataset.valid.text_col, "sentence");
  EXPECT_EQ(loaded.config.dataset.train.label_col, "gold");
  EXPECT_EQ(loaded.config.dataset.labels, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(loaded.config.evaluation.metrics, (std::vector<Metric>{Metric::kF1, Metric::kAccuracy}));
  EXPECT_EQ(loaded.config.evaluation.interval, 2);
  EXPECT_EQ(loaded.config.evaluation.per_device_batch_size, 8);
  EXPECT_TRUE(has_notice(loaded, "data_parallel_size 4 = world_size 8 / (tensor_model_parallel_size 2 (configuration.json:20) x pipeline"));
  EXPECT_TRUE(has_notice(loaded, "batch_size_per_gpu 4 (configuration.json:10) is per device: batch_size 32 = 4 x data_parallel_size 4 x"));
  EXPECT_TRUE(has_notice(loaded, "without effect: something_new (configuration.json:21)"));
  // Without a launcher the file says how many ranks there are; a layout of flags replaces its own as a whole.
  loaded = load_text(kHubFile, "configuration.json");
  EXPECT_EQ(loaded.config.train.distributed.data_parallel_size, 4);
  loaded = load_text(kHubFile, "configuration.json", {"", {{"data_parallel_size", "2"}}, {}});
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.distributed.data_parallel_size, 2);
  EXPECT_EQ(loaded.config.train.distributed.model_parallel_size, 1);
  EXPECT_TRUE(has_notice(loaded, "megatron.world_size 8 (configuration.json:20) replaced by 2"));
}

TEST(ModelScope, EasyNlpYaml) {
  const std::string text = R"(version: v0.1
framework: pytorch
task: text-classification
model: {path: bert-base, hidden_size: 768, layer_norm_eps: 1e-05, num_classes: 5}
col_index: &col_indexs
  text_col: review
  label_col: stars
dataset:
  train: {<<: *col_indexs, file: t.tsv}
  valid: {<<: *col_indexs, file: glue/sst2}
  test: {<<: *col_indexs, file: ~}
preprocessor: {type: Tokenize, tokenizer_name: bert-base}
train: {batch_size: 256, learning_rate: 0.00001, lr_scheduler_type: cosine, num_steps: 1000}
evaluation: {model_path: .cache, max_sequence_length: 128, batch_size: 32, metrics: [accuracy, f1]}
)";
  EXPECT_TRUE(contains(load_text(text).error, "dataset.valid.file glue/sst2 (config.yaml:10) is no data file"));
  EXPECT_TRUE(contains(load_text(text).error, "Give --valid_file FILE"));
  Loaded loaded = load_text(text, "config.yaml", {"", {{"valid_file", "v.tsv"}}, {}}, 2);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.batch_size, 512);  // per device in the file
  EXPECT_EQ(loaded.config.train.optimizer.lr, 1e-5);
  EXPECT_EQ(loaded.config.train.lr_scheduler.type, LrSchedulerKind::kCosine);
  EXPECT_FALSE(loaded.config.train.lr_scheduler.by_epoch);
  EXPECT_EQ(loaded.config.train.max_steps, 1000);
  EXPECT_EQ(loaded.config.dataset.train.text_col, "review");
  EXPECT_EQ(loaded.config.preprocessor.sequence_length, 128);
  EXPECT_EQ(loaded.config.evaluation.per_device_batch_size, 32);
}

// The form of ModelScope's sentence-similarity and nli files.
TEST(ModelScope, TextPairs) {
  for (const char* task : {"sentence-similarity", "nli"}) {
    Loaded loaded = load_text(cat(R"({
  "framework": "pytorch", "task": ")",
                                  task, R"(",
  "model": {"type": "bert", "path": "m"},
  "preprocessor": {"type": "sen-sim-tokenizer", "first_sequence": "sentence1", "second_sequence": "sentence2", "label": "gold",
                   "label2id": {"same": 1, "other": 0}},
  "train": {"optimizer": {"type": "Adam", "lr": 0.001, "weight_decay": 0.1}}
})"),
                              "configuration.json", {"", {{"train_file", "t.csv"}, {"valid_file", "v.csv"}}, {}});
    ASSERT_EQ(loaded.error, "") << task;
    EXPECT_EQ(loaded.config.task, Task::kTextClassification);
    for (const auto* file : {&loaded.config.dataset.train, &loaded.config.dataset.valid}) {
      EXPECT_EQ(file->text_col, "sentence1");
      EXPECT_EQ(file->text_pair_col, "sentence2");
      EXPECT_EQ(file->label_col, "gold");
    }
    EXPECT_EQ(loaded.config.dataset.labels, (std::vector<std::string>{"other", "same"}));
    EXPECT_EQ(loaded.config.train.optimizer.type, OptimizerKind::kAdam);
    EXPECT_EQ(loaded.config.train.optimizer.weight_decay, 0.1);
    EXPECT_TRUE(loaded.config.train.optimizer.decay_all);
  }
  // Flags, over a file and alone; a part of the preprocessor for each use.
  Loaded loaded = load_flags({{"first_sequence", "a"}, {"second_sequence", "b"}, {"train_file", "t.csv"}, {"valid_file", "v.csv"}});
  EXPECT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.dataset.train.text_pair_col, "b");
  EXPECT_EQ(loaded.config.dataset.valid.text_pair_col, "b");
  loaded = load_flags({{"first_sequence", "a"}, {"task", "sentence_similarity"}}, {}, "framework: pytorch\ntask: text-generation\n");
  EXPECT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.task, Task::kTextClassification);
  EXPECT_EQ(loaded.config.where("task"), " (command line)");
  EXPECT_EQ(load_flags({{"second_sequence", "None"}}).config.dataset.train.text_pair_col, "");
  loaded = load_text("framework: pytorch\nmodel: {path: m}\npreprocessor: {first_sequence: a, second_sequence: b}\n", "config.yaml",
                     {"", {{"second_sequence", "c"}}, {}});
  EXPECT_EQ(loaded.config.dataset.valid.text_pair_col, "c") << loaded.error;
  loaded = load_text(
      "framework: pytorch\nmodel: {path: m}\npreprocessor: {train: {first_sequence: a, second_sequence: b}, val: {second_sequence: d}}\n");
  EXPECT_EQ(loaded.config.dataset.train.text_pair_col, "b") << loaded.error;
  EXPECT_EQ(loaded.config.dataset.valid.text_pair_col, "d");
  EXPECT_EQ(loaded.config.dataset.valid.text_col, "text");
}

TEST(ModelScope, FlatArguments) {
  Loaded loaded = load_text(
      "model_dir: m\nlr: 0.01\noptimizer: Adam\nweight_decay: 0\nsave_checkpoint_epochs: 20\nbatch_size: 4\nnew_key: 1\n", "a.yaml", {}, 2);
  ASSERT_EQ(loaded.error, "");
  EXPECT_TRUE(contains(loaded.config.model.path, "/m"));
  EXPECT_EQ(loaded.config.train.optimizer.lr, 0.01);
  EXPECT_EQ(loaded.config.train.optimizer.type, OptimizerKind::kAdam);
  EXPECT_EQ(loaded.config.train.optimizer.weight_decay, 0);
  EXPECT_EQ(loaded.config.train.save.interval, 20);
  EXPECT_EQ(loaded.config.train.batch_size, 8);
  EXPECT_TRUE(has_notice(loaded, "new_key (a.yaml:7)"));
  // per_device_train_batch_size is in both vocabularies: a name of ModelScope's own decides, so its defaults hold.
  for (const char* own : {"model_dir: m", "save_checkpoint_epochs: 2", "train_dataset_name: t.jsonl", "logging_interval: 3"}) {
    loaded = load_text(cat("per_device_train_batch_size: 4\n", own, "\n"));
    EXPECT_EQ(loaded.error, "") << own;
    EXPECT_EQ(loaded.config.train.clip_grad, 0) << own;
    EXPECT_EQ(loaded.config.train.max_epochs, 5) << own;
    EXPECT_EQ(loaded.config.evaluation.strategy, EvalStrategy::kEpoch) << own;
  }
  loaded = load_text("output_dir: o\nmodel_dir: m\n");
  EXPECT_TRUE(contains(loaded.error,
                       "output_dir (config.yaml:1) marks Hugging Face TrainingArguments, and model_dir (config.yaml:2) a "
                       "ModelScope file"))
      << loaded.error;
  // ModelScope's own defaults, and torch's of its default schedule.
  loaded = load_text("{\"model_dir\": \"m\"}", "a.json");
  ASSERT_EQ(loaded.error, "");
  const auto& t = loaded.config.train;
  EXPECT_EQ(t.max_epochs, 5);
  EXPECT_EQ(t.batch_size, 16);
  EXPECT_EQ(t.optimizer.lr, 5e-5);
  EXPECT_EQ(t.lr_scheduler.type, LrSchedulerKind::kRamp);
  EXPECT_EQ(t.lr_scheduler.total_periods, 5);
  EXPECT_NEAR(t.lr_scheduler.start_factor, 1.0 / 3, 1e-12);
  EXPECT_TRUE(t.lr_scheduler.by_epoch);
  EXPECT_TRUE(contains(t.work_dir, "/train_target"));
  EXPECT_EQ(t.clip_grad, 0);
  EXPECT_EQ(t.save.strategy, SaveStrategy::kEpoch);
}

TEST(ModelScope, Schedules) {
  auto schedule = [](const std::string& lines) {
    Loaded loaded = load_text("framework: pytorch\nmodel: {path: m}\ntrain:\n  max_epochs: 4\n  lr_scheduler:\n" + lines);
    EXPECT_EQ(loaded.error, "") << lines;
    return loaded.config.train.lr_scheduler;
  };
  auto s = schedule("    {type: CosineAnnealingLR, T_max: 7, eta_min: 1e-6, options: {by_epoch: false}}\n");
  EXPECT_EQ(s.type, LrSchedulerKind::kCosine);
  EXPECT_EQ(s.total_periods, 7);
  EXPECT_EQ(s.min_lr, 1e-6);
  EXPECT_FALSE(s.by_epoch);
  s = schedule("    {type: MultiStepLR, milestones: [2, 3], gamma: 0.5}\n");
  EXPECT_EQ(s.milestones, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(s.gamma, 0.5);
  s = schedule("    {type: noam}\n");
  EXPECT_EQ(s.type, LrSchedulerKind::kInverseSqrt);
  EXPECT_EQ(s.warmup_steps, 100);
  s = schedule("    {type: ConstantLR, factor: 0.5, total_iters: 2}\n");
  EXPECT_EQ(s.type, LrSchedulerKind::kConstant);
  EXPECT_EQ(s.warmup, WarmupKind::kConstant);
  EXPECT_EQ(s.warmup_ratio, 0.5);
  s = schedule(
      "    {type: LinearLR, options: {lr_strategy: by_step, warmup: {type: ExponentialWarmup, warmup_iters: 9, warmup_ratio: 0.2}}}\n");
  EXPECT_EQ(s.warmup, WarmupKind::kExponential);
  EXPECT_EQ(s.warmup_steps, 9);
  EXPECT_EQ(s.warmup_start_factor, 0.2);
  s = schedule("    {type: ExponentialLR, gamma: 0.9, options: {lr_strategy: 'no'}}\n");
  EXPECT_EQ(s.type, LrSchedulerKind::kConstant);
}

TEST(ModelScope, Refusals) {
  struct Row {
    const char* lines;  // of train, below framework and model
    const char* piece;
    int64_t world_size = 0;
  };
  const std::vector<Row> table = {
      {"megatron: {world_size: 4, tensor_model_parallel_size: 2}",
       "megatron.world_size 4 (config.yaml:3) is not the number of launched ranks: there are 8; write world_size 8", 8},
      {"megatron: {world_size: 6, tensor_model_parallel_size: 4}", "sizes that fit"},
      {"megatron: {version: moe}", "mixtures of experts"},
      {"megatron: {pipeline_model_parallel_split_rank: 2}", "splits an encoder"},
      {"task: image_classification", "task image_classification (config.yaml:3): this task is not available"},
      {"preprocessor: {first_sequence: a, second_sequence: a}",
       "dataset.train.text_pair_col a (config.yaml:3) is the column of the first text too"},
      {"preprocessor: {src_txt: a, tgt_txt: b}", "rows of prompt and target are not available yet"},
      {"preprocessor: {label2id: {a: 0, b: 2}}", "the numbers must be 0 to 1, each once"},
      {"dataset: {train: {name: clue, subset_name: afqmc}}",
       "dataset.train.name clue (config.yaml:3) is no data file: data sets on a hub are not fetched. Give --train_file"},
      {"train: {hooks: [{type: CheckpointHook}], checkpoint: {period: {interval: 1}}}",
       "hook CheckpointHook (config.yaml:3) and train.checkpoint.period (config.yaml:3) are two forms of one hook; keep one"},
      {"train: {hooks: [{type: TextLoggerHook}, {type: TextLoggerHook}]}", "hook TextLoggerHook is given twice"},
      {"train: {hooks: [{type: ApexAMPOptimizerHook}]}", "TorchAMPOptimizerHook is mixed precision too"},
      {"train: {hooks: [{type: PlateauLrSchedulerHook, metric_key: f1}]}", "a schedule that follows a metric is not available"},
      {"train: {hooks: [{type: SwiftHook}]}", "adapters"},
      {"train: {hooks: [{type: ChekpointHook}]}", "hook ChekpointHook (config.yaml:3) is not known; nearest: CheckpointHook"},
      {"train: {hooks: [{type: DeepspeedHook, zero_stage: 2}]}", "sharded optimizer states are not available yet"},
      {"train: {hooks: [{type: DeepspeedHook, config: {zero_optimization: {stage: 0, offload_optimizer: {device: cpu}}}}]}", "offloading"},
      {"train: {hooks: [{type: DeepspeedHook, deepspeed_activation_checkpointing: true}]}",
       "activation checkpointing is not available yet"},
      {"train: {hooks: [{type: OptimizerHook, cumulative_iters: 2}], optimizer: {options: {cumulative_iters: 4}}}",
       "train.distributed.gradient_accumulation_steps is given twice"},
      {"train: {hooks: [{type: OptimizerHook, loss_keys: [loss, aux]}]}", "one loss"},
      {"train: {hooks: [{type: BestCkptSaverHook, metric_key: f1, rule: min}]}", "contradicts f1, which is better when greater"},
      {"train: {hooks: [{type: EarlyStopHook, metric_key: loss}]}\nevaluation: {metrics: accuracy}\n#", ""},
      {"train: {checkpoint: {best: {metric_key: accuracy}}, hooks: [{type: EarlyStopHook, metric_key: loss}]}",
       "training stops by the first metric, accuracy"},
      {"train: {checkpoint: {period: {push_to_hub: true}}}", "uploading"},
      {"train: {checkpoint: {period: {save_strategy: by_step, by_epoch: true}}}", "contradicts train.checkpoint.period.by_epoch true"},
      {"train: {optimizer: {type: Adamax, weight_decay: 1e-6}}", "Adamax (config.yaml:3) is not available; one of AdamW, Adam, SGD"},
      {"train: {optimizer: {type: ChildTuningAdamW}}",
       "train.optimizer.type ChildTuningAdamW (config.yaml:3) is not available; one of AdamW"},
      {"train: {lr_scheduler: {type: StepLR}}", "train.lr_scheduler.type StepLR (config.yaml:3) needs step_size"},
      {"train: {lr_scheduler: {type: StepLr, step_size: 1}}", "nearest: StepLR"},
      {"train: {lr_scheduler: {type: StepLR, step_size: 1, T_max: 3}}", "StepLR has no such argument; it has step_size, gamma"},
      {"train: {lr_scheduler: {type: LambdaLR}}", "Python code"},
      {"train: {lr_scheduler: {type: LinearLR}, lr_scheduler_type: cosine}", "two schedules of the learning rate"},
      {"train: {lr_scheduler: {type: LinearLR, options: {by_epoch: true, lr_strategy: by_step}}}", "contradicts"},
      {"train: {dataloader: {batch_size_per_gpu: 2, drop_last: true}}", "every row is used"},
      {"train: {train_iters_per_epoch: 5}", "give train.max_steps"},
      {"evaluation: {metrics: [accuracy, precision]}", "metric precision is not available; one of accuracy, f1, loss, ppl"},
      {"parallel: {type: FSDP}", "nearest valid value DistributedDataParallel"},
      {"plugins: [x]", "Python plug-ins"},
      {"train: 3", "train 3 (config.yaml:3) must be a section"},
  };
  for (const auto& row : table) {
    Loaded loaded = load_text(std::string("framework: pytorch\nmodel: {path: m}\n") + row.lines + "\n", "config.yaml", {}, row.world_size);
    EXPECT_EQ(loaded.code, *row.piece ? 2 : 0) << row.lines << "\n  message: " << loaded.error;
    EXPECT_TRUE(contains(loaded.error, row.piece)) << row.lines << "\n  message: " << loaded.error << "\n  without: " << row.piece;
  }
  EXPECT_TRUE(contains(load_text("x = 1", "train.py").error, "Python program"));
}

TEST(ModelScope, Flags) {
  // The example of GPT-3 that ModelScope ships: understood up to its model, which is on a hub.
  std::vector<std::pair<std::string, std::string>> example = {{"trainer", "nlp-gpt3-trainer"},
                                                              {"work_dir", "./tmp"},
                                                              {"model", "damo/nlp_gpt3_text-generation_1.3B"},
                                                              {"preprocessor", "text-gen-jieba-tokenizer"},
                                                              {"src_txt", "text1"},
                                                              {"tgt_txt", "text2"},
                                                              {"max_epochs", "3"},
                                                              {"per_device_train_batch_size", "16"},
                                                              {"lr", "3e-4"},
                                                              {"lr_scheduler", "noam"},
                                                              {"eval_metrics", "ppl"},
                                                              {"world_size", "4"},
                                                              {"tensor_model_parallel_size", "2"},
                                                              {"use_megatron", "true"},
                                                              {"use_model_config", "true"}};
  Loaded loaded;
  try {
    load_config({"", example, {}}, 4, nullptr);
  } catch (const Error& error) {
    loaded.error = error.what();
    loaded.code = static_cast<int>(error.code());
  }
  EXPECT_EQ(loaded.code, 4);
  EXPECT_TRUE(contains(loaded.error, "model damo/nlp_gpt3_text-generation_1.3B (command line) is not a folder here")) << loaded.error;
  EXPECT_TRUE(contains(loaded.error, "--model DIR")) << loaded.error;
  std::vector<std::pair<std::string, std::string>> local;
  for (auto [name, value] : example)
    if (name != "tgt_txt" && name != "use_model_config") local.emplace_back(name, name == "model" ? "./gpt" : value);
  local.emplace_back("task", "text-generation");
  local.emplace_back("train_dataset_name", "poems.csv");
  std::vector<std::string> notices;
  Config config = load_config({"", local, {}}, 4, &notices);
  EXPECT_EQ(config.train.distributed.data_parallel_size, 2);
  EXPECT_EQ(config.train.batch_size, 32);
  EXPECT_EQ(config.train.lr_scheduler.type, LrSchedulerKind::kInverseSqrt);
  EXPECT_EQ(config.train.optimizer.lr, 3e-4);
  EXPECT_EQ(config.train.seed, 42);
  EXPECT_EQ(config.dataset.train.text_col, "text1");
  EXPECT_TRUE(contains(config.dataset.train.file, "/poems.csv"));
  EXPECT_EQ(config.evaluation.metrics, std::vector<Metric>{Metric::kPerplexity});
  EXPECT_THROW(load_config({"", local, {}}, 8, nullptr), Error);
  // Dotted names of ModelScope's files, over a file.
  CommandLine flags{"",
                    {{"train.dataloader.batch_size_per_gpu", "6"},
                     {"optimizer", "SGD"},
                     {"train.optimizer.options.grad_clip", "0.5"},
                     {"save_strategy", "by_step"}},
                    {}};
  loaded = load_text(kHubFile, "configuration.json", flags, 8);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.per_device_train_batch_size, 6);
  EXPECT_EQ(loaded.config.train.optimizer.type, OptimizerKind::kSGD);
  EXPECT_EQ(loaded.config.train.optimizer.weight_decay, 0);
  EXPECT_EQ(loaded.config.train.save.strategy, SaveStrategy::kSteps);
  // Over a native file whose schedule they replace.
  CommandLine schedule{"", {{"lr_scheduler", "StepLR"}, {"lr_scheduler_params", "step_size=2"}}, {}};
  loaded = load_text("train: {lr_scheduler: {type: cosine, step_size: 9, warmup_steps: 3}}\n", "config.yaml", schedule);
  EXPECT_EQ(loaded.config.train.lr_scheduler.type, LrSchedulerKind::kStep) << loaded.error;
  EXPECT_EQ(loaded.config.train.lr_scheduler.step_size, 2);
  EXPECT_EQ(loaded.config.train.lr_scheduler.warmup_steps, 3);
  loaded = load_text("model_dir: m\ngradient_checkpointing: true\n");
  EXPECT_TRUE(contains(loaded.error, "recomputation is not available yet")) << loaded.error;
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> bad = {
      {{"second_sequence", "text"}, "is the column of the first text too"},
      {{"train_drop_last", "true"}, "every row is used"},
      {{"dataset_json_file", "d.json"}, "--train_file"},
      {{"train_dataset_name", "clue"}, "Give --train_file"},
      {{"optimizer_params", "lr"}, "NAME=VALUE"},
      {{"optimizer_params", "lrate=1"}, "the optimizer has no lrate"},
      {{"eval_metric", "ppl"}, "nearest known name: eval_metrics"},
      {{"train.dataloader.batch_size_per_gpus", "4"}, "unknown flag --train.dataloader.batch_size_per_gpus"},
      {{"lr_strategy", "sometimes"}, "is not one of by_epoch, by_step, no"},
  };
  for (const auto& [flag, piece] : bad) {
    loaded = load_flags({flag});
    EXPECT_EQ(loaded.code, 2) << flag.first;
    EXPECT_TRUE(contains(loaded.error, piece)) << flag.first << ": " << loaded.error;
  }
}

TEST(ModelScope, ModelConfigOfTheFolder) {
  std::string folder = ::testing::TempDir() + "modelscope_folder";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/configuration.json")
      << "{\"framework\": \"pytorch\", \"task\": \"text-generation\", \"train\": {\"max_epochs\": 7}}";
  std::ofstream(folder + "/config.json") << "{}";
  std::ofstream(folder + "/ds.json") << "{\"fp16\": {\"enabled\": true}, \"train_micro_batch_size_per_gpu\": 3}";
  Config config = load_config({"", {{"model", folder}, {"use_model_config", "true"}, {"lr", "1e-3"}}, {}}, 0, nullptr);
  EXPECT_EQ(config.train.max_epochs, 7);
  EXPECT_EQ(config.train.optimizer.lr, 1e-3);
  config = load_config({folder + "/configuration.json", {}, {}}, 0, nullptr);
  EXPECT_EQ(config.model.path, folder);  // the file lies in its model's folder
  std::ofstream(folder + "/configuration.json") << "{\"framework\": \"pytorch\", \"train\": {\"dataloader\": {\"batch_size_per_gpu\": 3}, "
                                                   "\"hooks\": [{\"type\": \"DeepspeedHook\", \"config\": \"ds.json\"}]}}";
  config = load_config({folder + "/configuration.json", {}, {}}, 0, nullptr);
  EXPECT_EQ(config.train.dtype, DType::kFloat16);
  EXPECT_EQ(config.train.batch_size, 3);
}

}  // namespace plait
