// The sections of a ModelScope file; optimizer, schedule and hooks are in files of their own.
#include "plait/config/modelscope.h"

#include <algorithm>

#include "plait/base/error.h"
#include "plait/config/scalar.h"

namespace plait {

namespace {

using detail::translate_evaluation_period;
using detail::translate_hooks;
using detail::translate_lr_scheduler;
using detail::translate_metrics;
using detail::translate_optimizer;

const std::string kSizes = "train.distributed.";
const std::string kShape = "the model's shape is what config.json of its folder says";

bool ends_with(const std::string& text, const std::string& tail) {
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

bool names_a_file(const std::string& text) {
  for (const char* ending : {".jsonl", ".json", ".tsv", ".csv", ".txt"})
    if (ends_with(text, ending)) return true;
  return false;
}

void translate_task(FileTranslator* file, const Place& task) {
  if (!task) return;
  std::string word = detail::native_task(file->text(task));
  if (word.empty()) file->refuse(task, "this task is not available; one of text-classification, text-generation");
  file->become(task, "task", word);
}

void translate_model(FileTranslator* file, const Place& model, const Place& megatron) {
  if (!model) return;
  if (!model.is_map()) return file->become(model, "model.path");
  for (const char* name : {"path", "model_dir"}) file->become(file->at(model, name), "model.path");
  Place type = file->at(model, "type");
  std::string word = type ? file->text(type) : "";
  if (word == "gpt-moe") file->refuse(type, "mixtures of experts are not available yet");
  file->ignore(type, kShape);
  // Sizes of older files, and those ModelScope assumes for a model without a megatron section.
  file->become(file->at(model, "model_parallel_size"), kSizes + "model_parallel_size");
  Place world = file->at(model, "world_size"), newer = megatron.is_map() ? file->at(megatron, "world_size") : Place{};
  bool said_twice = world && newer && file->text(world) == file->text(newer);
  if (said_twice) file->derive(world, "the same as megatron.world_size");
  else file->become(world, "modelscope.world_size");
  if (word == "plug" && !megatron) {
    if (!model.node->find("model_parallel_size")) file->become(type, kSizes + "model_parallel_size", "8");
    if (!model.node->find("world_size")) file->become(type, "modelscope.world_size", "8");
  }
  if ((word == "plug" || word == "mglm-text-summarization") && !megatron) file->become(type, "modelscope.seed", "1234");
  file->ignore(file->at(model, "checkpoint_model_parallel_size"), "safetensors are read into any layout");
  for (const char* name : {"rank", "master_ip", "master_port"}) file->ignore(file->at(model, name), "the launcher says it");
  file->ignore(file->at(model, "strict"), "a weight that is missing or does not fit is always an error");
  // What is left describes the network.
  for (const Place& entry : file->entries(model)) {
    std::string key = entry.path.substr(model.path.size() + 1);
    static const std::vector<std::string> read = {
        "path",      "model_dir",   "type",  "model_parallel_size", "world_size", "checkpoint_model_parallel_size", "rank",
        "master_ip", "master_port", "strict"};
    if (!entry.node->is_null() && std::find(read.begin(), read.end(), key) == read.end()) file->ignore(entry, kShape);
  }
}

// dataset.train and its like. Names of a hub wait for a file from the command line.
void translate_data_section(FileTranslator* file, const Place& section, const std::string& use) {
  if (!section) return;
  std::string at = "dataset." + use;
  if (!section.is_map()) {
    bool is_file = names_a_file(file->text(section));
    return file->become(section, is_file ? at + ".file" : "modelscope.hub_data." + use);
  }
  Place given = file->at(section, "file");
  if (given && names_a_file(file->text(given))) file->become(given, at + ".file");
  else if (given) file->become(given, "modelscope.hub_data." + use);
  file->become(file->at(section, "text_col"), at + ".text_col");
  file->become(file->at(section, "text_pair_col"), at + ".text_pair_col");
  file->become(file->at(section, "label_col"), at + ".label_col");
  file->become(file->at(section, "rows"), at + ".rows");
  Place labels = file->at(section, "labels");
  if (use == "train") file->become(labels, "dataset.labels");
  else file->ignore(labels, "class names are those of dataset.train.labels");
  Place name;
  for (const char* key : {"name", "dataset_name", "type"})
    if (Place place = file->at(section, key)) {
      if (!name && !given) file->become(place, "modelscope.hub_data." + use);
      else file->ignore(place, "data come from a file");
      name = place;
    }
  for (const char* key : {"subset_name", "split", "namespace", "data_source"})
    file->ignore(file->at(section, key), "data sets on a hub are not fetched");
}

void translate_dataset(FileTranslator* file, const Place& dataset) {
  if (!dataset) return;
  translate_data_section(file, file->at(dataset, "train"), "train");
  for (const char* name : {"val", "valid", "validation"}) translate_data_section(file, file->at(dataset, name), "valid");
  file->ignore(file->at(dataset, "test"), "plait eval --data FILE scores a test file");
  file->become(file->at(dataset, "labels"), "dataset.labels");
}

// {negative: 0, positive: 1}: class names in the order of their numbers.
void translate_label2id(FileTranslator* file, const Place& label2id) {
  if (!label2id) return;
  if (!label2id.is_map()) return file->become(label2id, "dataset.labels");
  std::vector<std::string> labels(label2id.node->entries.size());
  for (const Place& entry : file->entries(label2id)) {
    auto id = parse_integer_text(file->text(entry));
    bool in_range = id && *id >= 0 && *id < static_cast<int64_t>(labels.size());
    if (!in_range || !labels[static_cast<size_t>(*id)].empty())
      file->refuse(label2id, cat("the numbers must be 0 to ", labels.size() - 1, ", each once"));
    labels[static_cast<size_t>(*id)] = entry.path.substr(label2id.path.size() + 1);
  }
  file->become_list(label2id, "dataset.labels", labels);
}

void translate_columns(FileTranslator* file, const Place& section, const std::vector<std::string>& uses) {
  Place first = file->at(section, "first_sequence"), source = file->at(section, "src_txt");
  if (first && source)
    throw_error(ExitCode::kUsage, quote(first.path, first.given()), " and ", quote(source.path, source.given()),
                " both name the column of the text; keep one");
  for (const auto& use : uses) {
    file->become(first ? first : source, "dataset." + use + ".text_col");
    file->become(file->at(section, "second_sequence"), "dataset." + use + ".text_pair_col");
    file->become(file->at(section, "label"), "dataset." + use + ".label_col");
  }
  file->become(file->at(section, "tgt_txt"), "modelscope.tgt_txt");
}

void translate_preprocessor(FileTranslator* file, const Place& preprocessor) {
  if (!preprocessor) return;
  if (!preprocessor.is_map()) return file->ignore(preprocessor, "text becomes tokens as tokenizer.json of the model folder says");
  Place train = file->at(preprocessor, "train"), valid = file->at(preprocessor, "val");
  translate_columns(file, preprocessor, {"train", "valid"});
  if (train) translate_columns(file, train, {"train"});
  if (valid) translate_columns(file, valid, {"valid"});
  bool first = true;
  for (const Place& section : {preprocessor, train, valid}) {
    if (!section) continue;
    for (const char* name : {"type", "tokenizer_name", "model_dir", "padding", "truncation", "use_fast", "mode"})
      file->ignore(file->at(section, name), "text becomes tokens as tokenizer.json of the model folder says");
    Place labels = file->at(section, "label2id");
    Place length = file->at(section, "sequence_length") ? file->at(section, "sequence_length") : file->at(section, "max_length");
    if (valid && section.path == valid.path && !first) {  // the training rows decide
      file->ignore(labels, "class names are those of the training rows");
      file->ignore(length, "the length is that of the training rows");
      continue;
    }
    translate_label2id(file, labels);
    file->become(length, "preprocessor.sequence_length");
    first &= !labels && !length;
  }
}

void translate_dataloader(FileTranslator* file, const Place& loader, bool training) {
  if (!loader) return;
  file->become(file->at(loader, "batch_size_per_gpu"), training ? "train.per_device_train_batch_size" : "evaluation.per_device_batch_size");
  file->ignore(file->at(loader, "workers_per_gpu"), "all cores tokenise before the first step");
  for (const char* name : {"pin_memory", "persistent_workers", "prefetch_factor"})
    file->ignore(file->at(loader, name), "rows are in memory");
  if (training) file->become(file->at(loader, "shuffle"), "train.shuffle");
  else file->ignore(file->at(loader, "shuffle"), "metrics do not depend on the order of rows");
  file->only_off(file->at(loader, "drop_last"),
                 "every row is used, the last partial batch with its right weight; nearest valid value false");
}

void translate_train(FileTranslator* file, const Place& train) {
  if (!train) return;
  file->become(file->at(train, "work_dir"), "train.work_dir");
  file->become(file->at(train, "seed"), "train.seed");
  file->become(file->at(train, "max_epochs"), "train.max_epochs");
  if (Place iters = file->at(train, "train_iters_per_epoch"))
    file->refuse(iters, "an epoch is every row once; for a shorter run leave it out and give train.max_steps, or rows of dataset.train");
  translate_dataloader(file, file->at(train, "dataloader"), true);
  translate_optimizer(file, file->at(train, "optimizer"));
  translate_lr_scheduler(file, file->at(train, "lr_scheduler"));
  file->ignore(file->at(train, "launcher"), "plait finds the launcher by its environment");
  detail::translate_messages(file, train);
  file->become(file->at(train, "clip_grad"), "train.clip_grad");
  file->become(file->at(train, "use_fp16"), "train.fp16");
  file->become(file->at(train, "bf16"), "train.bf16");
  file->ignore(file->at(train, "fp16_backend"), "there is one");
  // The flat spellings of the EasyNLP files. batch_size is per device there.
  file->become(file->at(train, "batch_size"), "train.per_device_train_batch_size");
  file->become(file->at(train, "learning_rate"), "train.optimizer.params.lr");
  file->become(file->at(train, "weight_decay"), "train.optimizer.params.weight_decay");
  file->become(file->at(train, "lr_scheduler_type"), "train.lr_scheduler.type");
  file->become(file->at(train, "warmup_steps"), "train.lr_scheduler.warmup_steps");
  file->become(file->at(train, "num_steps"), "train.max_steps");
  file->become(file->at(train, "num_epochs"), "train.max_epochs");
  file->become(file->at(train, "gradient_accumulation_steps"), "train.distributed.gradient_accumulation_steps");
  file->become(file->at(train, "logging_steps"), "train.logging_steps");
}

void translate_evaluation(FileTranslator* file, const Place& evaluation) {
  if (!evaluation) return;
  translate_dataloader(file, file->at(evaluation, "dataloader"), false);
  file->become(file->at(evaluation, "batch_size"), "evaluation.per_device_batch_size");
  file->become(file->at(evaluation, "max_sequence_length"), "preprocessor.sequence_length");
  file->ignore(file->at(evaluation, "model_path"), "plait eval --model DIR scores a model");
  translate_metrics(file, file->at(evaluation, "metrics"));
  if (Place iters = file->at(evaluation, "val_iters_per_epoch"))
    file->refuse(iters, "an evaluation uses every row; for fewer leave it out and give rows of dataset.valid");
}

void translate_megatron(FileTranslator* file, const Place& megatron) {
  if (!megatron) return;
  file->become(file->at(megatron, "world_size"), "modelscope.world_size");
  file->become(file->at(megatron, "tensor_model_parallel_size"), kSizes + "model_parallel_size");
  file->become(file->at(megatron, "pipeline_model_parallel_size"), kSizes + "pipeline_parallel_size");
  Place chunks = file->at(megatron, "virtual_pipeline_model_parallel_size");
  file->become(chunks, kSizes + "virtual_pipeline_size");
  if (chunks && parse_integer_text(file->text(chunks)).value_or(0) > 1) file->become(chunks, kSizes + "schedule", "interleaved_1f1b");
  file->only_off(file->at(megatron, "pipeline_model_parallel_split_rank"),
                 "it splits an encoder from a decoder, and such models are not available");
  file->ignore(file->at(megatron, "checkpoint_tensor_model_parallel_size"), "safetensors are read into any layout");
  file->become(file->at(megatron, "sequence_parallel"), kSizes + "sequence_parallel");
  Place version = file->at(megatron, "version");
  if (version && file->text(version) == "moe") file->refuse(version, "mixtures of experts are not available yet");
  file->ignore(version, kShape);
  for (const char* name : {"rank", "local_rank"}) file->ignore(file->at(megatron, name), "the launcher says it");
  file->ignore(file->at(megatron, "distributed_backend"), "train.comm.backend says what carries messages");
  file->become(file->at(megatron, "seed"), "modelscope.seed");
  file->only_off(file->at(megatron, "data_parallel_random_init"), "replicas always start alike; nearest valid value false");
  for (const char* name : {"lazy_mpu_init", "use_cpu_initialization"})
    file->ignore(file->at(megatron, name), "weights do not depend on where they are made");
}

void translate_parallel(FileTranslator* file, const Place& parallel) {
  if (!parallel) return;
  Place type = file->at(parallel, "type");
  if (type && file->text(type) != "DistributedDataParallel")
    file->refuse(type, "data ranks work as DistributedDataParallel does; nearest valid value DistributedDataParallel");
  file->ignore(parallel, "data ranks are what the sizes leave; plait has its own gradient buckets");
}

}  // namespace

std::string detail::native_task(std::string id) {
  std::replace(id.begin(), id.end(), '_', '-');
  if (id == "text-classification" || id == "text-generation") return id;
  bool classifies = id == "sentiment-classification" || id == "nli" || id == "sentence-similarity" || id == "sentiment-analysis";
  return classifies ? "text-classification" : "";
}

void translate_modelscope(FileTranslator* file) {
  Place root = file->root();
  if (Place framework = file->at(root, "framework"); framework && file->text(framework) != "pytorch" && file->text(framework) != "torch")
    file->refuse(framework, "plait trains PyTorch models; nearest valid value pytorch");
  file->derive(file->at(root, "framework"), "told that this is a ModelScope file");
  translate_task(file, file->at(root, "task"));
  Place train = file->at(root, "train"), evaluation = file->at(root, "evaluation"), megatron = file->at(root, "megatron");
  translate_model(file, file->at(root, "model"), megatron);
  translate_megatron(file, megatron);
  translate_dataset(file, file->at(root, "dataset"));
  translate_preprocessor(file, file->at(root, "preprocessor"));
  translate_train(file, train);
  translate_evaluation(file, evaluation);
  translate_hooks(file, train, evaluation);
  translate_parallel(file, file->at(root, "parallel"));
  for (const char* name : {"pipeline", "postprocessor"}) file->ignore(file->at(root, name), "it belongs to inference in ModelScope");
  for (const char* name : {"version", "log_level", "allow_remote"}) file->ignore(file->at(root, name), "nothing depends on it here");
  file->only_off(file->at(root, "plugins"), "Python plug-ins cannot be loaded");
  for (const Place& entry : file->entries(root))
    if (entry.node->reused) file->ignore(entry, "it holds an anchor that is used elsewhere");
}

void set_modelscope_defaults(Config* config) {
  auto& t = config->train;
  t.seed = 42;
  t.max_epochs = 5;
  t.work_dir = "train_target";
  t.clip_grad = 0;
  t.per_device_train_batch_size = 16;
  t.optimizer.weight_decay = 0.01;  // torch's AdamW
  t.optimizer.decay_all = true;     // one parameter group
  t.logging_steps = 10;
  t.save.strategy = SaveStrategy::kEpoch;
}

}  // namespace plait
