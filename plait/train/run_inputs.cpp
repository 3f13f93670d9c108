#include "plait/train/run_inputs.h"

#include <chrono>
#include <filesystem>

#include "plait/base/error.h"
#include "plait/checkpoint/model_folder.h"
#include "plait/data/micro_batches.h"
#include "plait/data/sampler.h"
#include "plait/plan/layout_check.h"
#include "plait/train/load_model.h"
#include "plait/train/saved_weights.h"
#include "plait/train/trace.h"

namespace plait {

namespace {

using Say = std::function<void(const std::string&)>;

// One line every two seconds while a large file is tokenised.
std::function<void(const LoadProgress&)> progress_lines(const std::string& file, const Say& say) {
  auto last = std::make_shared<std::chrono::steady_clock::time_point>(std::chrono::steady_clock::now());
  return [=](const LoadProgress& p) {
    auto now = std::chrono::steady_clock::now();
    if (now - *last < std::chrono::seconds(2) || p.bytes_total == 0) return;
    *last = now;
    say(cat("reading ", file, ": ", 100 * p.bytes_done / p.bytes_total, " %, ", p.rows_done, " rows"));
  };
}

Dataset load(const RunInputs& in, const DataFileConfig& file, const char* setting, LabelUse use, LabelMap* labels,
             const Tokenizer* tokenizer, const std::string& cache_dir, const Say& say) {
  LoadOptions options;
  options.cache_dir = cache_dir;
  options.tokenizer_path = in.config.model.path + "/tokenizer.json";
  options.label_use = use;
  options.progress = progress_lines(file.file, say);
  options.setting = setting;
  Dataset rows = load_dataset(file, in.config.task, in.config.preprocessor, tokenizer, in.shape, labels, options);
  say(cat(setting, " ", file.file, ": ", summary(rows)));
  return rows;
}

// Class names that config.json carries, unless they are only Hugging Face's fillers LABEL_0, LABEL_1.
std::vector<std::string> model_label_names(const ModelShape& shape) {
  for (size_t i = 0; i < shape.label_names.size(); ++i)
    if (shape.label_names[i] != cat("LABEL_", i)) return shape.label_names;
  return {};
}

void find_labels(RunInputs& in, RunKind kind) {
  const auto& given = in.config.dataset.labels;
  if (!given.empty()) {
    in.labels = given_labels(given);
  } else if (kind != RunKind::kTrain) {
    in.labels = LabelMap{model_label_names(in.shape)};
    if (in.labels.empty())
      for (int64_t i = 0; i < in.shape.num_labels; ++i) in.labels.names.push_back(cat(i));
  }
}

void require_file(const DataFileConfig& file, const char* setting, const char* flag) {
  if (file.file.empty()) throw_error(ExitCode::kUsage, setting, " is not given: name a data file in the settings or with ", flag);
}

}  // namespace

MeshLayout layout_of(const Config& config) {
  const auto& d = config.train.distributed;
  return {d.data_parallel_size, d.pipeline_parallel_size, d.model_parallel_size};
}

namespace {

// What rows and number of steps say of a run.
void check_steps(const RunInputs& in) {
  const TrainConfig& train = in.config.train;
  const StepPlan plan = plan_steps(in.train.size(), train.batch_size, train.max_epochs, train.max_steps);
  bool has_target = false;
  for (int64_t row = 0; row < in.train.size() && !has_target; ++row) has_target = count_targets(in.train.row(row), in.config.task) > 0;
  if (!has_target)
    throw_error(ExitCode::kData, in.config.dataset.train.file, ": none of its ", in.train.size(),
                " rows has a token to predict: a row of one token, or with all labels -100, has none");
  SavedWeights(train, plan).check_folders();
  check_trace_steps(in.config, plan.num_steps);
}

}  // namespace

RunInputs prepare_inputs(const Config& config, RunKind kind, const std::string& cache_dir, const Say& say) {
  RunInputs in;
  in.config = config;
  if (config.model.path.empty())
    throw_error(ExitCode::kUsage, "model.path is not given: name a Hugging Face model folder in the settings or with --model");
  in.shape = read_model_shape(config.model.path);
  in.layout = layout_of(config);
  check_layout(in.shape, in.layout, config);
  bool training = kind == RunKind::kTrain;
  if (training) require_file(config.dataset.train, "dataset.train.file", "--train_file");
  if (!training) require_file(config.dataset.valid, "dataset.valid.file", "--data");

  std::unique_ptr<Tokenizer> tokenizer;
  if (std::filesystem::exists(config.model.path + "/tokenizer.json")) tokenizer = load_tokenizer(config.model.path);
  LabelMap* labels = nullptr;
  if (config.task == Task::kTextClassification) {
    find_labels(in, kind);
    labels = &in.labels;
  }
  if (training)
    in.train = load(in, config.dataset.train, "dataset.train.file", LabelUse::kTraining, labels, tokenizer.get(), cache_dir, say);
  LabelUse use = kind == RunKind::kPredict ? LabelUse::kIgnored : LabelUse::kKnown;
  if (!config.dataset.valid.file.empty())
    in.valid = load(in, config.dataset.valid, "dataset.valid.file", use, labels, tokenizer.get(), cache_dir, say);

  in.head = {config.task, in.labels.size(), config.train.label_smoothing};
  if (labels && training && in.labels.size() < 2)
    throw_error(ExitCode::kData, config.dataset.train.file, ": ", in.labels.size(), " class in the column ", config.dataset.train.label_col,
                "; classification needs at least 2");
  if (labels && !training && in.shape.num_labels > 0 && in.shape.num_labels != in.labels.size())
    throw_error(ExitCode::kUsage, "dataset.labels names ", in.labels.size(), " classes, the model in ", config.model.path, " has ",
                in.shape.num_labels);
  check_model_files(in, training);
  if (!training) return in;
  refuse_foreign_folder(config.train.work_dir + "/output");
  if (!config.dataset.valid.file.empty()) refuse_foreign_folder(config.train.work_dir + "/output_best");
  check_steps(in);
  return in;
}

}  // namespace plait
