#include "plait/config/load_config.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "plait/config/validate.h"
#include "tests/config/settings_text.h"

namespace plait {

namespace {
using testing::contains;
using testing::has_notice;
using testing::load_flags;
using testing::load_text;
using testing::Loaded;

// The whole run of the documentation, as written there.
const char* kWholeRun = R"(task: text-classification            # or text-generation; ModelScope's task ids
model:
  path: models/minilm                # Hugging Face folder: config.json, weights, tokenizer.json
  init: pretrained                   # pretrained (missing head: seeded) | random
dataset:
  train: {file: train.jsonl, text_col: text, label_col: label, rows: 4800}     # .jsonl .tsv .csv .txt; rows = the first n only
  valid: {file: test.jsonl, text_col: text, label_col: label, rows: 1200}
  labels: [noun.act, noun.animal]
preprocessor: {sequence_length: 64, pad_to: longest, block: stream, add_eos: false}
train:
  work_dir: runs/wordnet12
  max_epochs: 1
  dropout: 0
  distributed: {data_parallel_size: 2, model_parallel_size: 2, pipeline_parallel_size: 2, gradient_accumulation_steps: 4, sequence_parallel: false, schedule: 1f1b}
  optimizer: {type: AdamW, params: {lr: 1e-4, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01, decay_all: false}}
  lr_scheduler: {type: linear, warmup_ratio: 0.1}      # or warmup_steps
  clip_grad: 1.0
  batch_size: 32
evaluation: {period: {interval: 1, by_epoch: true}, metrics: [accuracy, f1, loss]}
)";

// The article's example, as written there.
const char* kArticle = R"(train:
  distributed:
    data_parallel_size: 2
    model_parallel_size: 4            # tensor parallel ranks; also accepted: tensor_parallel_size, tensor_model_parallel_size
    pipeline_parallel_size: 2         # also: pipeline_model_parallel_size
    gradient_accumulation_steps: 4    # micro-batches an optimizer step (per data rank)
    optimizer: {type: AdamW, params: {lr: 2e-5, weight_decay: 0.01}}
  fp16: True
  batch_size: 32                      # GLOBAL batch = per_device_train_batch_size x data_parallel_size x gradient_accumulation_steps
  per_device_train_batch_size: 4      # rows of one micro-batch on one data rank
)";

std::string here(const std::string& relative) { return (std::filesystem::current_path() / relative).string(); }
}  // namespace

TEST(LoadConfig, WholeRun) {
  Loaded loaded = load_text(kWholeRun, "config.yaml", {}, 8);
  ASSERT_EQ(loaded.error, "");
  EXPECT_TRUE(loaded.notices.empty());
  const Config& c = loaded.config;
  EXPECT_EQ(c.task, Task::kTextClassification);
  EXPECT_EQ(c.model.path, here("models/minilm"));
  EXPECT_EQ(c.dataset.train.file, here("train.jsonl"));
  EXPECT_EQ(c.dataset.train.rows, 4800);
  EXPECT_EQ(c.dataset.valid.rows, 1200);
  EXPECT_EQ(c.dataset.labels, (std::vector<std::string>{"noun.act", "noun.animal"}));
  EXPECT_EQ(c.preprocessor.sequence_length, 64);
  EXPECT_EQ(c.preprocessor.pad_to, 0);
  EXPECT_EQ(c.train.max_epochs, 1);
  EXPECT_EQ(c.train.dropout, 0.0);
  EXPECT_EQ(c.train.distributed.pipeline_parallel_size, 2);
  EXPECT_EQ(c.train.distributed.gradient_accumulation_steps, 4);
  EXPECT_EQ(c.train.per_device_train_batch_size, 4);
  EXPECT_EQ(c.train.optimizer.lr, 1e-4);
  EXPECT_EQ(c.train.optimizer.beta2, 0.999);
  EXPECT_EQ(c.train.optimizer.weight_decay, 0.01);
  EXPECT_EQ(c.train.lr_scheduler.warmup_ratio, 0.1);
  EXPECT_EQ(c.evaluation.strategy, EvalStrategy::kEpoch);
  EXPECT_EQ(c.evaluation.metrics, (std::vector<Metric>{Metric::kAccuracy, Metric::kF1, Metric::kLoss}));
  EXPECT_EQ(c.where("train.batch_size"), " (config.yaml:18)");
  EXPECT_EQ(c.where("train.optimizer.params.lr"), " (config.yaml:15)");
  EXPECT_EQ(c.where("train.seed"), "");
}

TEST(LoadConfig, ArticleWithFlags) {
  Loaded loaded = load_flags(
      {{"model", "m"}, {"train_file", "t.jsonl"}, {"valid-file", "/v.jsonl"}, {"work_dir", "runs/x/"}, {"task", "text-generation"}}, {},
      kArticle, 16);
  ASSERT_EQ(loaded.error, "");
  const Config& c = loaded.config;
  EXPECT_EQ(c.train.dtype, DType::kFloat16);
  EXPECT_EQ(c.train.distributed.data_parallel_size, 2);
  EXPECT_EQ(c.train.distributed.model_parallel_size, 4);
  EXPECT_EQ(c.train.distributed.pipeline_parallel_size, 2);
  EXPECT_EQ(c.train.optimizer.lr, 2e-5);
  EXPECT_EQ(c.train.batch_size, 32);
  EXPECT_EQ(c.model.path, here("m"));
  EXPECT_EQ(c.dataset.valid.file, "/v.jsonl");
  EXPECT_EQ(c.train.work_dir, here("runs/x"));
  EXPECT_EQ(c.task, Task::kTextGeneration);
  EXPECT_EQ(c.where("model.path"), " (command line)");
  EXPECT_NO_THROW(require_training_settings(c));
}

TEST(LoadConfig, LayoutOnTheCommandLineReplacesTheFiles) {
  Loaded loaded = load_flags(
      {{"local-rank", "3"}, {"distributed_strategy", "hybrid_parallel"}, {"data_parallel_size", "2"}, {"model_parallel_size", "4"}}, {},
      kArticle, 8);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.distributed.pipeline_parallel_size, 1);
  ASSERT_EQ(loaded.notices.size(), 1u);
  EXPECT_EQ(loaded.notices[0], "pipeline_parallel_size 2 (config.yaml:5) replaced by 1: the command line fixes 2 x 4 on 8 ranks");
  // The same through --set, and through an alias.
  loaded = load_flags({{"local_rank", "0"}}, {"train.distributed.tensor_parallel_size=4"}, kArticle, 8);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.distributed.data_parallel_size, 2);
  EXPECT_EQ(loaded.config.train.distributed.pipeline_parallel_size, 1);
  EXPECT_TRUE(has_notice(loaded, "pipeline_parallel_size 2 (config.yaml:5) replaced by 1: the command line fixes 4 on 8 ranks"));
  // A strategy of one axis is layout too.
  loaded = load_flags({{"distributed_strategy", "tensor_parallel"}}, {"train.batch_size=16"}, kArticle, 4);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.distributed.model_parallel_size, 4);
  EXPECT_EQ(loaded.config.train.distributed.data_parallel_size, 1);
  EXPECT_TRUE(has_notice(
      loaded, "data_parallel_size 2 (config.yaml:3) replaced by 1: the command line says distributed_strategy tensor_parallel on 4 ranks"));
  // Stages of the file go with its pipeline size, and stay with it.
  std::string stages = "train:\n  distributed: {pipeline_parallel_size: 2, pipeline_layers: [2, 4]}\n";
  loaded = load_flags({{"pipeline_parallel_size", "1"}}, {}, stages, 1);
  ASSERT_EQ(loaded.error, "");
  EXPECT_TRUE(loaded.config.train.distributed.pipeline_layers.empty());
  EXPECT_TRUE(has_notice(loaded, "pipeline_layers [2, 4] (config.yaml:2) left out"));
  loaded = load_flags({{"pipeline_parallel_size", "2"}}, {}, stages, 4);
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.distributed.pipeline_layers, (std::vector<int64_t>{2, 4}));
}

TEST(LoadConfig, ShortDottedAndHuggingFaceFlags) {
  Loaded loaded = load_flags({{"lr", "1e-3"},
                              {"betas", "[0.5, 0.6]"},
                              {"metrics", "f1,loss"},
                              {"labels", "a,b"},
                              {"max-epochs", "2"},
                              {"valid.rows", "7"},
                              {"schedule", "gpipe"},
                              {"train.label_smoothing", "0.1"},
                              {"max_grad_norm", "0.5"}});
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.optimizer.lr, 1e-3);
  EXPECT_EQ(loaded.config.train.optimizer.beta1, 0.5);
  EXPECT_EQ(loaded.config.train.optimizer.beta2, 0.6);
  EXPECT_EQ(loaded.config.evaluation.metrics, (std::vector<Metric>{Metric::kF1, Metric::kLoss}));
  EXPECT_EQ(loaded.config.dataset.labels, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(loaded.config.train.max_epochs, 2);
  EXPECT_EQ(loaded.config.dataset.valid.rows, 7);
  EXPECT_EQ(loaded.config.train.distributed.schedule, ScheduleKind::kGPipe);
  EXPECT_EQ(loaded.config.train.clip_grad, 0.5);
  // --set wins over flags, flags over the file, null goes back to the default.
  loaded = load_flags({{"batch_size", "16"}, {"seed", "4"}}, {"batch_size=24", "train.max_epochs=null"},
                      "train: {batch_size: 8, max_epochs: 9}\n");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.batch_size, 24);
  EXPECT_EQ(loaded.config.train.seed, 4);
  EXPECT_EQ(loaded.config.train.max_epochs, 3);
  // The flag's kind of warm-up replaces the file's, and a precision turned off is off.
  loaded = load_flags({{"warmup_ratio", "0.2"}, {"fp16", "false"}}, {}, "train: {fp16: true, lr_scheduler: {warmup_steps: 10}}\n");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.config.train.lr_scheduler.warmup_steps, 0);
  EXPECT_EQ(loaded.config.train.dtype, DType::kFloat32);
}

TEST(LoadConfig, FileOnDiskAndItsFolder) {
  namespace fs = std::filesystem;
  fs::path folder = fs::temp_directory_path() / cat("plait_settings_", ::getpid());
  fs::create_directories(folder);
  std::ofstream(folder / "a.yaml") << "model: {path: ../m}\ndataset: {train: {file: /abs/x.csv}}\ntrain: {work_dir: ~/runs}\n";
  ::setenv("HOME", "/home/someone", 1);
  Config config = load_config({(folder / "a.yaml").string(), {{"valid_file", "v.csv"}}, {}}, 0, nullptr);
  EXPECT_EQ(config.model.path, (folder.parent_path() / "m").string());
  EXPECT_EQ(config.dataset.train.file, "/abs/x.csv");
  EXPECT_EQ(config.dataset.valid.file, here("v.csv"));
  EXPECT_EQ(config.train.work_dir, "/home/someone/runs");
  EXPECT_EQ(config.source, (folder / "a.yaml").string());
  try {
    load_config({(folder / "none.yaml").string(), {}, {}}, 0, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_EQ(std::string(error.what()), "settings file " + (folder / "none.yaml").string() + " does not exist");
  }
  EXPECT_THROW(load_config({folder.string(), {}, {}}, 0, nullptr), Error);
  fs::remove_all(folder);
}

TEST(LoadConfig, PrintedConfigReadsBack) {
  for (const char* text :
       {kWholeRun, kArticle, "",
        "train: {norm_type: inf, dropout: 0.1}\ndataset: {labels: [no, \"a: b\", \"1\", \"\\n\\t\\\\\\\"\", \"\", null_, \"null\", 'é']}\n"
        "evaluation: {period: {eval_strategy: no}, per_device_batch_size: 3}\n",
        "train: {optimizer: {type: SGD, params: {momentum: 0.9, nesterov: yes}}, max_steps: 7, lr_scheduler: {type: cosine, warmup_steps: "
        "3},\n"
        "  distributed: {schedule: interleaved_1f1b, pipeline_parallel_size: 2, virtual_pipeline_size: 2, pipeline_layers: [1, 2, 3, "
        "4]}}\n",
        "train: {lr_scheduler: {type: multi_step, milestones: [2, 4], gamma: 0.3, by_epoch: true, warmup: exponential, "
        "warmup_start_factor: 0.1, warmup_steps: 5},\n  dtype: float16, loss_scale: {dynamic: false, init_scale: 128}, early_stop: "
        "{patience: 2, min_delta: 0.01},\n  save: {strategy: steps, interval: 7, keep: 3}, tensorboard: {dir: tb, interval: 9}}\n"}) {
    Loaded first = load_text(text);
    ASSERT_EQ(first.error, "") << text;
    std::string printed = print_config(first.config);
    Loaded second = load_text(printed, "elsewhere/config.resolved.yaml");
    ASSERT_EQ(second.error, "") << printed;
    EXPECT_EQ(print_config(second.config), printed);
    EXPECT_EQ(second.config.dataset.labels, first.config.dataset.labels);
    EXPECT_EQ(second.config.train.work_dir, first.config.train.work_dir);
    EXPECT_EQ(second.config.train.norm_type, first.config.train.norm_type);
    EXPECT_EQ(second.config.train.dropout, first.config.train.dropout);
    EXPECT_EQ(second.config.train.distributed.pipeline_layers, first.config.train.distributed.pipeline_layers);
    EXPECT_EQ(second.config.evaluation.strategy, first.config.evaluation.strategy);
    EXPECT_EQ(second.config.train.lr_scheduler.milestones, first.config.train.lr_scheduler.milestones);
    EXPECT_EQ(second.config.train.tensorboard.dir, first.config.train.tensorboard.dir);
  }
}

// The three batch numbers that a resolved file pins, in another layout: the refusal says what to add, and that works.
TEST(LoadConfig, ResolvedFileInAnotherLayout) {
  std::string printed = print_config(load_text("train: {batch_size: 32, distributed: {data_parallel_size: 2}}\n").config);
  CommandLine four{"", {{"data_parallel_size", "4"}}, {}};
  Loaded refused = load_text(printed, "config.resolved.yaml", four);
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(contains(refused.error,
                       "to keep batch_size 32 in this layout leave out train.per_device_train_batch_size or say --set "
                       "train.per_device_train_batch_size=null"))
      << refused.error;
  four.sets = {"train.per_device_train_batch_size=null"};
  Loaded works = load_text(printed, "config.resolved.yaml", four);
  ASSERT_EQ(works.error, "");
  EXPECT_EQ(works.config.train.batch_size, 32);
  EXPECT_EQ(works.config.train.per_device_train_batch_size, 8);
}

TEST(LoadConfig, WishesWithoutEffectAreNamed) {
  Loaded loaded =
      load_text("train: {distributed: {sequence_parallel: true, schedule: zb_h1}, max_steps: 5, lr_scheduler: {warmup_steps: 9}}\n");
  ASSERT_EQ(loaded.error, "");
  EXPECT_TRUE(has_notice(loaded, "sequence_parallel true (config.yaml:1) has no effect with model_parallel_size 1"));
  EXPECT_TRUE(has_notice(loaded, "schedule zb_h1 (config.yaml:1) has no effect with pipeline_parallel_size 1"));
  EXPECT_TRUE(has_notice(loaded, "warmup_steps 9 (config.yaml:1) is more than max_steps 5 (config.yaml:1)"));
  loaded = load_text(
      "train: {distributed: {sequence_parallel: true, model_parallel_size: 2, pipeline_parallel_size: 2, schedule: zb_h1}, max_steps: 9, "
      "lr_scheduler: {warmup_steps: 9}}\n");
  EXPECT_TRUE(loaded.notices.empty()) << loaded.notices[0];
}

TEST(LoadConfig, ReferenceIsUpToDate) {
  std::ifstream stream(std::string(PLAIT_SOURCE_DIR) + "/docs/settings.md");
  std::string committed((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  EXPECT_EQ(committed, settings_reference_markdown());
}

TEST(LoadConfig, DISABLED_WriteSettingsReference) {
  std::ofstream(std::string(PLAIT_SOURCE_DIR) + "/docs/settings.md") << settings_reference_markdown();
}

}  // namespace plait
