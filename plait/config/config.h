// Config: every setting, resolved. Whatever file or flags the user came with ends in this one struct, which is
// validated by one function and printed back by --print-config. Defaults here are those of the native form.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace plait {

enum class Task { kTextClassification, kTextGeneration };
enum class DType { kFloat32, kBFloat16, kFloat16, kFloat64 };
enum class ScheduleKind { kGPipe, k1F1B, kInterleaved1F1B, kZeroBubbleH1, kZeroBubbleH2, kZeroBubbleV, kAuto, kCustom };
enum class CommStyle { kAuto, kP2P, kCollective };
enum class GradientCompression { kNone, kBFloat16, kFloat16, kFloat8, kPowerSGD, kTopK, kNccl };
enum class BorderCompression { kNone, kBFloat16, kFloat16, kFloat8 };
enum class Affinity { kAuto, kNone };
enum class OptimizerKind { kAdamW, kAdam, kSGD };
enum class LrSchedulerKind { kLinear, kCosine, kConstant, kStep, kMultiStep, kExponential, kPolynomial, kRamp, kInverseSqrt };
enum class WarmupKind { kLinear, kConstant, kExponential };
enum class SaveStrategy { kNo, kEpoch, kSteps };
enum class BlockMode { kStream, kDocument };
enum class Metric { kAccuracy, kF1, kLoss, kPerplexity };
enum class EvalStrategy { kNo, kEpoch, kSteps };

struct ModelConfig {
  std::string path;                 // Hugging Face folder: config.json, weights, tokenizer.json
  std::string init = "pretrained";  // pretrained | random
  std::string head_init;            // safetensors with classifier.weight / classifier.bias
};

struct DataFileConfig {
  std::string file;  // .jsonl .tsv .csv .txt; empty = none
  std::string text_col = "text";
  std::string text_pair_col;  // the second text of a row (classification); empty = none
  std::string label_col = "label";
  int64_t rows = 0;  // only the first n rows; 0 = all
};

struct DatasetConfig {
  DataFileConfig train, valid;
  std::vector<std::string> labels;  // class names in id order; empty = found in the training file
};

struct PreprocessorConfig {
  int64_t sequence_length = 0;  // tokens; 0 = the model's own limit
  int64_t pad_to = 0;           // 0 = longest of the micro-batch
  BlockMode block = BlockMode::kStream;
  bool add_eos = false;             // the model's eos token after each document (causal LM)
  bool document_attention = false;  // causal LM, block stream: documents of one row do not see each other; positions restart
};

struct DistributedConfig {
  int64_t data_parallel_size = 1;
  int64_t model_parallel_size = 1;  // tensor-parallel ranks
  int64_t pipeline_parallel_size = 1;
  int64_t virtual_pipeline_size = 1;        // model chunks a pipeline rank holds (interleaved 1F1B)
  int64_t gradient_accumulation_steps = 1;  // micro-batches a step on one data rank
  bool sequence_parallel = false;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  std::string schedule_file;             // schedule custom: the text form of docs/schedules.md
  int64_t pipeline_memory_bytes = 0;     // schedule auto: for activations in flight on one rank; 0 = what the machine has free
  std::vector<int64_t> pipeline_layers;  // layers of each stage; empty = balanced by cost
  int64_t zero_stage = 0;
  int64_t bucket_size_bytes = 25 << 20;  // data-parallel gradient bucket
  bool overlap_grad_reduce = true;
  bool overlap_tensor_comm = true;    // input gradients travel while weight gradients are computed
  bool overlap_pipeline_comm = true;  // receives are posted ahead
};

struct OptimizerConfig {
  OptimizerKind type = OptimizerKind::kAdamW;
  double lr = 5e-5;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.0;
  bool decay_all = false;  // decay biases and norms too
  double momentum = 0.0;   // SGD
  bool nesterov = false;   // SGD
};

struct LrSchedulerConfig {
  LrSchedulerKind type = LrSchedulerKind::kLinear;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0.0;  // of all updates; used when warmup_steps is 0
  WarmupKind warmup = WarmupKind::kLinear;
  double warmup_start_factor = 0.0;  // share of the learning rate in the first update of the warm-up
  bool by_epoch = false;             // the schedule after the warm-up counts epochs, not updates
  // Of single kinds, named and meant as in torch.optim.lr_scheduler.
  int64_t step_size = 1;                        // step: periods between two drops
  std::vector<int64_t> milestones;              // multi_step: periods of the drops
  double gamma = 0.1;                           // step, multi_step, exponential: factor of a drop
  double power = 1.0;                           // polynomial
  double start_factor = 1.0, end_factor = 1.0;  // ramp
  int64_t total_periods = 0;                    // linear, cosine, polynomial, ramp: until the end is reached; 0 = the whole run
  double min_lr = 0.0;                          // cosine, polynomial: the learning rate at the end
};

struct CommPriorityConfig {  // p2p: rings of sends and receives, in pieces beside the products; collective: the backend's own
  CommStyle tensor_parallel = CommStyle::kAuto;
  CommStyle data_parallel = CommStyle::kAuto;
};

struct CommCompressionConfig {  // of gradients over the data axis, with error feedback but for nccl
  GradientCompression algorithm = GradientCompression::kNone;
  int64_t threshold_bytes = 64 << 10;                     // smaller messages go as they are
  int64_t rank = 16;                                      // powersgd: columns of the factors
  double ratio = 0.01;                                    // topk: share of the elements that is sent
  BorderCompression pipeline = BorderCompression::kNone;  // activations and gradients between pipeline stages
};

struct CommConfig {
  std::string backend = "auto";  // auto | shm | gloo | nccl | mpi
  CommPriorityConfig priority;
  CommCompressionConfig compression;
};

struct ProfileConfig {
  std::string trace_file;  // Chrome trace of all ranks (Perfetto, chrome://tracing); empty = none
  int64_t first_step = 3;  // 1-based
  int64_t num_steps = 3;
  bool mfu = false;  // measure the machine's rate of matrix products at the start, report the model's share of it
};

struct EarlyStopConfig {
  int64_t patience = 0;    // evaluations without a better first metric before training stops; 0 = off
  double min_delta = 0.0;  // a smaller gain does not count
};

struct SaveConfig {  // weights during training, as Hugging Face folders work_dir/weights/step_N
  SaveStrategy strategy = SaveStrategy::kNo;
  int64_t interval = 1;  // epochs or steps
  int64_t keep = 0;      // only the newest n folders; 0 = all
};

struct TensorboardConfig {
  std::string dir;       // event files for TensorBoard; empty = none
  int64_t interval = 1;  // steps
};

struct LossScaleConfig {  // fp16 only
  bool dynamic = true;    // false: init_scale stays
  double init_scale = 65536.0;
  double growth_factor = 2.0, backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // steps without overflow
};

struct TrainConfig {
  std::string work_dir = "runs/plait";
  int64_t max_epochs = 3;
  int64_t max_steps = 0;  // 0 = by epochs
  int64_t seed = 0;
  bool shuffle = true;
  DType dtype = DType::kFloat32;
  std::optional<double> dropout;  // none = as config.json says
  double clip_grad = 1.0;         // 0 = off
  double norm_type = 2.0;         // 2 or infinity
  double label_smoothing = 0.0;
  int64_t batch_size = 8;                   // global rows a step
  int64_t per_device_train_batch_size = 8;  // rows of one micro-batch on one data rank
  DType export_dtype = DType::kFloat32;
  double log_interval_seconds = 5;  // off a terminal
  int64_t logging_steps = 0;        // 0 = by time
  bool progress_bar = true;         // on a terminal; false = lines as elsewhere
  std::string device = "auto";      // auto | cpu | cuda
  double comm_timeout_seconds = 600;
  Affinity cpu_affinity = Affinity::kAuto;  // auto: ranks that take all cores of a machine stay on their own ones
  CommConfig comm;
  ProfileConfig profile;
  DistributedConfig distributed;
  OptimizerConfig optimizer;
  LrSchedulerConfig lr_scheduler;
  LossScaleConfig loss_scale;
  EarlyStopConfig early_stop;
  SaveConfig save;
  TensorboardConfig tensorboard;
};

struct EvaluationConfig {
  EvalStrategy strategy = EvalStrategy::kEpoch;
  int64_t interval = 1;               // epochs or steps
  std::vector<Metric> metrics;        // empty: accuracy, f1, loss | loss, perplexity
  int64_t per_device_batch_size = 0;  // rows of one evaluation micro-batch; 0 = the training one
};

struct Config {
  Task task = Task::kTextClassification;
  ModelConfig model;
  DatasetConfig dataset;
  PreprocessorConfig preprocessor;
  TrainConfig train;
  EvaluationConfig evaluation;
  std::string source;  // the settings file as given, for messages
  // "file:line" or "command line" of each dotted setting that was given.
  std::map<std::string, std::string> origin;

  // Where `setting` came from, for messages: " (config.yaml:9)" or "".
  std::string where(const std::string& setting) const {
    auto it = origin.find(setting);
    return it == origin.end() ? std::string() : " (" + it->second + ")";
  }
};

}  // namespace plait
