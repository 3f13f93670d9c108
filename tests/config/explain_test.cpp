#include "plait/config/explain.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/config/settings_text.h"

namespace plait {

using testing::contains;

Explanation explain_text(const std::string& name, const std::string& text, std::vector<std::pair<std::string, std::string>> flags = {},
                         int64_t world_size = 0) {
  std::string path = ::testing::TempDir() + "explain_" + name;
  std::ofstream(path) << text;
  return explain_settings({path, std::move(flags), {}}, world_size);
}

// "fate: outcome" of a key.
std::string fate_of(const Explanation& explanation, const std::string& key) {
  for (const auto& line : explanation.lines)
    if (line.key == key) return line.fate + ": " + line.outcome;
  return "no line";
}

TEST(Explain, ModelScope) {
  Explanation e = explain_text("configuration.json", R"({
  "framework": "pytorch", "task": "text-classification",
  "model": {"path": "m", "backbone": {"hidden_size": 4}}, "preprocessor": {"first_sequence": "a", "second_sequence": "b"},
  "train": {"dataloader": {"batch_size_per_gpu": 4, "workers_per_gpu": 1},
    "optimizer": {"type": "Adam", "lr": 1e-3},
    "hooks": [{"type": "IterTimerHook"}, {"type": "CheckpointHook", "interval": 3}, {"type": "TorchAMPOptimizerHook", "loss_scale": 64}]},
  "megatron": {"world_size": 4, "tensor_model_parallel_size": 2},
  "new": {"key": 1}
})",
                               {{"lr", "0.5"}});
  EXPECT_EQ(e.error, "");
  EXPECT_EQ(e.exit_code, 0);
  EXPECT_EQ(fate_of(e, "task"), "setting: task = text-classification");
  EXPECT_EQ(fate_of(e, "model.backbone.hidden_size"), "ignored: the model's shape is what config.json of its folder says");
  EXPECT_EQ(fate_of(e, "train.dataloader.batch_size_per_gpu"), "setting: train.per_device_train_batch_size = 4");
  EXPECT_EQ(fate_of(e, "train.dataloader.workers_per_gpu"), "ignored: all cores tokenise before the first step");
  EXPECT_EQ(fate_of(e, "train.optimizer.type"), "setting: train.optimizer.type = Adam");
  EXPECT_EQ(fate_of(e, "preprocessor.second_sequence"), "setting: dataset.train.text_pair_col = b, dataset.valid.text_pair_col = b");
  EXPECT_EQ(fate_of(e, "train.optimizer.lr"), "replaced: the command line says train.optimizer.params.lr = 0.5");
  EXPECT_EQ(fate_of(e, "train.hooks[1].interval"), "setting: train.save.interval = 3");
  EXPECT_EQ(fate_of(e, "train.hooks[1]"), "setting: train.save.strategy = epoch");
  EXPECT_EQ(fate_of(e, "train.hooks[2].loss_scale"), "setting: train.loss_scale.dynamic = false, train.loss_scale.init_scale = 64");
  EXPECT_EQ(fate_of(e, "train.hooks[2]"), "setting: train.dtype = float16");
  EXPECT_EQ(fate_of(e, "train.hooks[0].type"), "derived: hook IterTimerHook");
  EXPECT_EQ(fate_of(e, "megatron.tensor_model_parallel_size"), "setting: train.distributed.model_parallel_size = 2");
  EXPECT_EQ(fate_of(e, "megatron.world_size"), "derived: data_parallel_size = 2, what the other sizes leave");
  EXPECT_EQ(fate_of(e, "new.key"), "ignored: unknown key");
  std::string text = explanation_text(e);
  EXPECT_TRUE(contains(text, "configuration.json: read as ModelScope settings")) << text;
  EXPECT_TRUE(contains(text, "configuration.json:4  train.dataloader.batch_size_per_gpu: 4 ")) << text;
  EXPECT_TRUE(contains(text, "train.seed = 42 (native default: 0)")) << text;
  EXPECT_TRUE(contains(text, "train.lr_scheduler.type = ramp (ModelScope's default)")) << text;
  EXPECT_TRUE(contains(text, "ranks: 4 = data_parallel_size 2 x model_parallel_size 2 x pipeline_parallel_size 1")) << text;
  EXPECT_TRUE(contains(text, "--lr -> train.optimizer.params.lr = 0.5")) << text;
  EXPECT_TRUE(contains(explanation_json(e), "\"fate\": \"replaced\""));
}

TEST(Explain, EveryForm) {
  Explanation e = explain_text(
      "native.yaml",
      "train:\n  batch_size: 8\n  fp16: true\n  optimizer: {params: {betas: [0.8, 0.9]}}\nrest: &a {file: t}\ndataset:\n  train: *a\n");
  EXPECT_EQ(e.error, "");
  EXPECT_EQ(e.form, "native settings");
  EXPECT_EQ(fate_of(e, "train.batch_size"), "setting: train.batch_size = 8");
  EXPECT_EQ(fate_of(e, "train.fp16"), "setting: train.dtype = float16");
  EXPECT_EQ(fate_of(e, "train.optimizer.params.betas"), "setting: train.optimizer.params.beta1 = 0.8, train.optimizer.params.beta2 = 0.9");
  EXPECT_TRUE(contains(fate_of(e, "rest.file"), "ignored: it holds an anchor")) << fate_of(e, "rest.file");
  e = explain_text("hf.json", "{\"output_dir\": \"o\", \"learning_rate\": 1e-3, \"run_name\": \"x\", \"gradient_checkpointing\": false}");
  EXPECT_EQ(e.form, "Hugging Face TrainingArguments");
  EXPECT_EQ(fate_of(e, "learning_rate"), "setting: train.optimizer.params.lr = 0.001");
  EXPECT_TRUE(contains(fate_of(e, "run_name"), "ignored: run_name x"));
  EXPECT_EQ(fate_of(e, "gradient_checkpointing"), "ignored: it asks for what plait does anyway");
  e = explain_text(
      "ds.json",
      "{\"train_batch_size\": 8, \"fp16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": 0, \"overlap_comm\": true}}");
  EXPECT_EQ(e.form, "a DeepSpeed configuration");
  EXPECT_EQ(fate_of(e, "fp16.enabled"), "ignored: auto: flags or defaults decide");
  EXPECT_EQ(fate_of(e, "zero_optimization.overlap_comm"), "ignored: it belongs to stages above 0");
  e = explain_text("flat.yaml", "model_dir: m\nlr: 0.1\nmodel_revision: v1\nunknown: 1\n");
  EXPECT_EQ(fate_of(e, "model_revision"), "ignored: models on a hub are not fetched");
  EXPECT_EQ(fate_of(e, "lr"), "setting: train.optimizer.params.lr = 0.1");
  EXPECT_EQ(fate_of(e, "unknown"), "ignored: unknown key");
}

TEST(Explain, ErrorsAreAtTheirLine) {
  Explanation e = explain_text(
      "bad.json",
      "{\"framework\": \"pytorch\", \"model\": {\"path\": \"m\"},\n\"megatron\": {\"world_size\": 4,\n\"tensor_model_parallel_size\": 2}}",
      {}, 8);
  EXPECT_EQ(e.exit_code, 2);
  EXPECT_TRUE(contains(fate_of(e, "megatron.world_size"), "error: megatron.world_size 4")) << fate_of(e, "megatron.world_size");
  EXPECT_EQ(fate_of(e, "model.path"), "setting: model.path = m");
  e = explain_text("bad.yaml", "train:\n  seed: 1\n  batchsize: 3\n  max_epochs: 2\n");
  EXPECT_TRUE(contains(fate_of(e, "train.batchsize"), "error: ")) << explanation_text(e);
  EXPECT_EQ(fate_of(e, "train.seed"), "setting: train.seed = 1");
  EXPECT_EQ(fate_of(e, "train.max_epochs"), "unread: not settled: the error came first");
  e = explain_text("range.yaml", "train:\n  dropout: 2\n");
  EXPECT_TRUE(contains(fate_of(e, "train.dropout"), "error: train.dropout 2")) << explanation_text(e);
  // The user's own names, also where an error stopped the reading.
  e = explain_text("flat.yaml", "model_dir: m\noptimizer: SGD\nlr: -1\n");
  EXPECT_EQ(fate_of(e, "optimizer"), "setting: train.optimizer.type = SGD");
  e = explain_text("flat.yaml", "model_dir: m\noptimizer: SGD\ngradient_checkpointing: true\n");
  EXPECT_EQ(fate_of(e, "optimizer"), "unread: not settled: the error came first");
  e = explain_text("hub.json", R"({"framework": "pytorch", "model": {"world_size": 4}, "megatron": {"world_size": 8}})");
  EXPECT_TRUE(contains(e.error, "world_size is given twice: as model.world_size")) << e.error;
  EXPECT_FALSE(contains(explanation_text(e) + e.error, "modelscope.")) << e.error;
  e = explain_text("hub.json", R"({"framework": "pytorch", "model": {"path": "m", "world_size": 4}, "megatron": {"world_size": 4}})");
  EXPECT_EQ(e.error, "");
  EXPECT_EQ(fate_of(e, "model.world_size"), "derived: the same as megatron.world_size");
  e = explain_text("hub.json", R"({"framework": "pytorch", "model": "m", "dataset": {"train": {"name": "clue"}}})",
                   {{"train_file", "t.jsonl"}});
  EXPECT_TRUE(contains(fate_of(e, "dataset.train.name"), "replaced: the command line says dataset.train.file = ")) << explanation_text(e);
  e = explain_settings({"nowhere.yaml", {}, {}}, 0);
  EXPECT_EQ(explanation_text(e), "nowhere.yaml: not read\n");
  e = explain_text("absent.yaml", "a: [");
  EXPECT_TRUE(contains(explanation_text(e), "absent.yaml: not read")) << explanation_text(e);
  EXPECT_EQ(e.exit_code, 2);
  EXPECT_TRUE(e.lines.empty());
}

}  // namespace plait
