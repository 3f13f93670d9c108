#include "plait/plan/schedule_choice.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/plan/stage_split.h"

namespace plait {

namespace {

// Of one rank. Only their ratio decides: how much computation a message is worth.
constexpr double kCpuFlopsPerSecond = 5e10, kDeviceFlopsPerSecond = 5e13;  // float32; twice that in 16 bits, half in 64
constexpr double kCpuBorderBytesPerSecond = 2e9, kDeviceBorderBytesPerSecond = 5e10;
constexpr double kMessageSeconds = 30e-6;

double bytes_of(DType dtype) { return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2; }

double row_share(const Config& config, int64_t tensor_size) {
  return config.train.distributed.sequence_parallel ? 1.0 / static_cast<double>(tensor_size) : 1.0;
}

double tokens_of_micro_batch(const ModelShape& shape, const Config& config) {
  return static_cast<double>(config.train.per_device_train_batch_size) * static_cast<double>(row_length(shape, config));
}

ScheduleCost costs_of(const ModelShape& shape, const MeshLayout& layout, const Config& config, const std::vector<Span>& layers,
                      bool on_device) {
  const double tokens = tokens_of_micro_batch(shape, config), e = bytes_of(config.train.dtype);
  const double rate = (on_device ? kDeviceFlopsPerSecond : kCpuFlopsPerSecond) * 4 / e * static_cast<double>(layout.tp_size);
  const LayerCost cost = layer_cost(shape, row_length(shape, config));
  ScheduleCost costs;
  for (size_t s = 0; s < layers.size(); ++s) {
    double flops =
        static_cast<double>(layers[s].size) * cost.layer + (s == 0 ? cost.embedding : 0) + (s + 1 == layers.size() ? cost.head : 0);
    double forward = flops * tokens / rate;
    costs.stages.push_back({forward, 2 * forward, forward});
  }
  double border = e * tokens * static_cast<double>(shape.hidden_size) * row_share(config, layout.tp_size);
  costs.send = kMessageSeconds + border / (on_device ? kDeviceBorderBytesPerSecond : kCpuBorderBytesPerSecond);
  return costs;
}

// Kinds and stages a rank that the model's layers, or the given split, allow. Of two that are equal the earlier is taken.
std::vector<PipelinePlan> possible_plans(const ModelShape& shape, int64_t pp_size, const Config& config) {
  const auto given = static_cast<int64_t>(config.train.distributed.pipeline_layers.size());
  auto allowed = [&](int64_t chunks) {
    if (given > 0) return given == pp_size * chunks;
    return pp_size <= shape.num_layers / chunks;
  };
  std::vector<PipelinePlan> plans;
  if (allowed(1))
    for (ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kGPipe, ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2})
      plans.emplace_back(kind, pp_size, 1);
  if (allowed(2)) plans.emplace_back(ScheduleKind::kZeroBubbleV, pp_size, 2);
  for (int64_t chunks = 2; pp_size <= shape.num_layers / chunks; ++chunks)
    if (allowed(chunks) && (given > 0 || shape.num_layers % (pp_size * chunks) == 0))
      plans.emplace_back(ScheduleKind::kInterleaved1F1B, pp_size, chunks);
  return plans;
}

std::string name_of(const ScheduleCandidate& c) {
  return c.kind == ScheduleKind::kInterleaved1F1B ? cat(enum_word(c.kind), " with ", c.stages_a_rank, " stages a rank") : enum_word(c.kind);
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 0.1 ? "%.3g ms" : "%.0f ms", 1e3 * seconds);
  return text;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string mebibytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < 100 * 1048576.0 ? "%.1f MiB" : "%.0f MiB", bytes / 1048576.0);
  return text;
}

// Of a parameter whose gradient goes compressed: residual, packed numbers and messages. The buckets are all on their way at once at the end
// of the backward.
double compression_bytes(const Config& config, int64_t data_size) {
  const CommCompressionConfig& compression = config.train.comm.compression;
  if (data_size == 1 || compression.algorithm == GradientCompression::kNone) return 0;
  const double master = config.train.dtype == DType::kFloat64 ? 8 : 4;
  // nccl keeps nothing, but works out what it leaves behind, for the metrics.
  const bool keeps_two = config.train.dtype == DType::kFloat16 && compression.algorithm != GradientCompression::kNccl;
  double messages = 0;
  switch (compression.algorithm) {
    case GradientCompression::kBFloat16:
    case GradientCompression::kFloat16: messages = 3 * 2; break;  // the shards sent and those awaited, the sums awaited
    case GradientCompression::kFloat8: messages = 3 * 1; break;
    case GradientCompression::kNccl: messages = 2; break;
    case GradientCompression::kTopK: messages = compression.ratio * (master + 4) * static_cast<double>(1 + data_size); break;
    case GradientCompression::kPowerSGD:  // thin factors
    case GradientCompression::kNone: break;
  }
  return (keeps_two ? 3 : 2) * master + messages;
}

}  // namespace

ActivationBytes activation_bytes(const ModelShape& shape, const Config& config, int64_t tensor_size) {
  const double e = bytes_of(config.train.dtype), t = static_cast<double>(tensor_size), s = 1 / row_share(config, tensor_size);
  const double T = tokens_of_micro_batch(shape, config), H = static_cast<double>(shape.hidden_size);
  const double B = static_cast<double>(config.train.per_device_train_batch_size), S = static_cast<double>(row_length(shape, config));
  const double N = static_cast<double>(shape.num_heads), q = static_cast<double>(shape.num_heads * shape.head_size);
  const double k = static_cast<double>(shape.num_kv_heads * shape.head_size), f = static_cast<double>(shape.ffn_size);
  const bool gated = shape.gated_ffn;
  const double w = std::max(e, 4.0);  // the loss and explicit attention probabilities are float32 in 16-bit runs too
  auto dropout = [&](double of_model) { return config.train.dropout.value_or(of_model) > 0; };
  ActivationBytes bytes;
  double attention = dropout(shape.attention_dropout) ? 2 * w * N * B * S * S / t : 4 * N * T / t;
  bytes.layer = 1.1 * (e * T * ((dropout(shape.hidden_dropout) ? 5 : 4) * H / s + (2 * q + 2 * k + (gated ? 3 : 2) * f) / t) + attention);
  // Whole rows under sequence parallelism too: a W holds what was gathered for it.
  bytes.layer_weights = e * T * (4 * H + (2 * q + 2 * k + (gated ? 3 : 2) * f) / t);
  bytes.embedding = e * T * H * (dropout(shape.embedding_dropout) ? 2 : 1) / s;
  const bool classifier = config.task == Task::kTextClassification;
  const double V = static_cast<double>(shape.vocab_size);
  bytes.head = classifier ? 3 * e * B * H : T * (w * V / t + 2 * e * H);
  bytes.head_weights = classifier ? 2 * e * B * H : e * T * (V / t + H);
  return bytes;
}

double state_bytes(const ModelShape& shape, const MeshLayout& layout, const Config& config) {
  const double H = static_cast<double>(shape.hidden_size), V = static_cast<double>(shape.vocab_size);
  const double q = static_cast<double>(shape.num_heads * shape.head_size), k = static_cast<double>(shape.num_kv_heads * shape.head_size);
  const double layer = H * (2 * q + 2 * k) + (shape.gated_ffn ? 3 : 2) * H * static_cast<double>(shape.ffn_size);
  const auto layers = static_cast<double>((shape.num_layers + layout.pp_size - 1) / layout.pp_size);
  const double tables = V * H * (shape.tied_embeddings || config.task == Task::kTextClassification ? 1 : 2);
  const double e = bytes_of(config.train.dtype);
  const double a_parameter = (e == 8 ? 32 : e == 4 ? 16 : 18) + compression_bytes(config, layout.dp_size);
  return (layers * layer + tables) / static_cast<double>(layout.tp_size) * a_parameter;
}

double peak_activation_bytes(const Schedule& schedule, const std::vector<Span>& layers, const ActivationBytes& bytes) {
  PLAIT_CHECK(static_cast<int64_t>(layers.size()) == schedule.num_stages, layers.size(), " stages");
  auto of_stage = [&](int64_t s, bool weights) {
    bool first = s == 0, last = s + 1 == schedule.num_stages;
    double n = static_cast<double>(layers[static_cast<size_t>(s)].size);
    if (weights) return n * bytes.layer_weights + (last ? bytes.head_weights : 0);
    return n * bytes.layer + (first ? bytes.embedding : 0) + (last ? bytes.head : 0);
  };
  double peak = 0;
  for (const auto& actions : schedule.actions) {
    bool defers = std::any_of(actions.begin(), actions.end(), [](const Action& a) { return a.kind == ActionKind::kWeight; });
    double held = 0;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kForward) held += of_stage(action.stage, false);
      if (action.kind == ActionKind::kBackward) held += (defers ? of_stage(action.stage, true) : 0) - of_stage(action.stage, false);
      if (action.kind == ActionKind::kWeight) held -= of_stage(action.stage, true);
      peak = std::max(peak, held);
    }
  }
  return peak;
}

ScheduleChoice choose_schedule(const ModelShape& shape, const MeshLayout& layout, const Config& config, bool on_device,
                               double memory_bytes) {
  const DistributedConfig& d = config.train.distributed;
  const std::string at = "train.distributed.";
  const ActivationBytes bytes = activation_bytes(shape, config, layout.tp_size);
  std::vector<ScheduleCandidate> candidates;
  for (const PipelinePlan& plan : possible_plans(shape, layout.pp_size, config)) {
    std::vector<Span> layers = stage_layers(shape, plan, config);
    Schedule schedule = plan.training(d.gradient_accumulation_steps);
    ScheduleReport report = check_schedule(schedule, costs_of(shape, layout, config, layers, on_device));
    PLAIT_CHECK(report.complete, report.problem);
    candidates.push_back(
        {plan.kind(), plan.stages_a_rank(), report.makespan, report.bubble, peak_activation_bytes(schedule, layers, bytes)});
  }
  if (candidates.empty())
    throw_error(ExitCode::kUsage, at, "pipeline_layers [", join(d.pipeline_layers), "]", config.where(at + "pipeline_layers"), " has ",
                d.pipeline_layers.size(), " entries: with schedule auto it needs as many as pipeline_parallel_size ", layout.pp_size,
                ", or a multiple, or leave it out");
  // Stable: kinds that are equal to within a millionth stay in the order above, plain ones first.
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds * (1 - 1e-6); });
  ScheduleChoice choice;
  choice.memory_bytes = memory_bytes;
  auto leaner = [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; };
  auto taken = std::find_if(candidates.begin(), candidates.end(), [&](const auto& c) { return c.peak_bytes <= memory_bytes; });
  if (taken == candidates.end()) {
    taken = std::min_element(candidates.begin(), candidates.end(), leaner);
    choice.fits = false;
    if (d.pipeline_memory_bytes > 0)
      throw_error(ExitCode::kUsage, at, "pipeline_memory_bytes ", d.pipeline_memory_bytes, config.where(at + "pipeline_memory_bytes"),
                  ": no schedule fits; the leanest, ", name_of(*taken), ", needs ", static_cast<int64_t>(taken->peak_bytes) + 1,
                  " bytes for its activations in flight. That value works, or a smaller per_device_train_batch_size");
  }
  choice.taken = *taken;
  choice.faster.assign(candidates.begin(), taken);
  choice.slower.assign(taken + 1, candidates.end());
  return choice;
}

std::vector<std::string> describe_choice(const ScheduleChoice& choice) {
  const ScheduleCandidate& taken = choice.taken;
  std::vector<std::string> lines = {cat("schedule auto: takes ", name_of(taken), ", predicted ", milliseconds(taken.seconds),
                                        " a step in the pipeline, bubble ", percent(taken.bubble), ", activations of up to ",
                                        mebibytes(taken.peak_bytes), " on a rank that has ", mebibytes(choice.memory_bytes),
                                        choice.fits ? "" : ": nothing fits by this estimate, this needs least")};
  constexpr size_t kShown = 3;
  std::vector<std::string> others;
  for (const auto& c : choice.faster)
    if (others.size() < kShown)
      others.push_back(cat(name_of(c), " is shorter (", milliseconds(c.seconds), ") but needs ", mebibytes(c.peak_bytes)));
  for (const auto& c : choice.slower)
    if (others.size() < kShown) others.push_back(cat(name_of(c), " ", milliseconds(c.seconds), ", bubble ", percent(c.bubble)));
  if (!others.empty()) lines.push_back(cat("schedule auto: passed over: ", join(others, "; ")));
  return lines;
}

}  // namespace plait
