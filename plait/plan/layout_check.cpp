#include "plait/plan/layout_check.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/plan/schedule_choice.h"
#include "plait/plan/stage_split.h"

namespace plait {

namespace {

constexpr const char* kTensorSetting = "train.distributed.model_parallel_size";
constexpr const char* kPipelineSetting = "train.distributed.pipeline_parallel_size";
constexpr const char* kVirtualSetting = "train.distributed.virtual_pipeline_size";
constexpr const char* kScheduleSetting = "train.distributed.schedule";

// "model_parallel_size 2 (config.yaml:9)": the setting as users write it, its value and its origin.
template <class Value>
std::string named(const Config& config, const std::string& setting, const Value& value) {
  return cat(setting.substr(setting.rfind('.') + 1), " ", value, config.where(setting));
}

bool kv_heads_fit(int64_t kv_heads, int64_t tensor_size) { return kv_heads % tensor_size == 0 || tensor_size % kv_heads == 0; }

void check_tensor_axis(const ModelShape& shape, const MeshLayout& layout, const Config& config) {
  int64_t tp = layout.tp_size;
  std::string rule;
  if (shape.num_heads % tp != 0) rule = cat("the ", shape.num_heads, " attention heads do not split evenly over ", tp, " tensor ranks");
  else if (!kv_heads_fit(shape.num_kv_heads, tp))
    rule = cat("the ", shape.num_kv_heads, " key/value heads neither split evenly over ", tp, " tensor ranks nor repeat evenly on them");
  else if (shape.ffn_size % tp != 0) rule = cat("the FFN size ", shape.ffn_size, " does not split evenly over ", tp, " tensor ranks");
  else if (shape.vocab_size < tp) rule = cat("the vocabulary of ", shape.vocab_size, " leaves a tensor rank without a row");
  if (rule.empty()) return;
  throw_error(ExitCode::kUsage, named(config, kTensorSetting, tp), ": ", rule, ". Sizes that work for this model (", shape.num_heads,
              " heads, ", shape.num_kv_heads, " key/value heads, FFN ", shape.ffn_size, "): ", join(tensor_sizes_that_fit(shape)));
}

void check_schedule_settings(const MeshLayout& layout, const Config& config) {
  const DistributedConfig& settings = config.train.distributed;
  int64_t chunks = settings.virtual_pipeline_size;
  bool interleaved = settings.schedule == ScheduleKind::kInterleaved1F1B;
  if (chunks < 1) throw_error(ExitCode::kUsage, named(config, kVirtualSetting, chunks), ": must be at least 1");
  if (interleaved && chunks < 2)
    throw_error(ExitCode::kUsage, named(config, kScheduleSetting, enum_word(settings.schedule)),
                ": needs virtual_pipeline_size 2 or more, it is ", chunks, config.where(kVirtualSetting));
  if (interleaved && layout.pp_size < 2)
    throw_error(ExitCode::kUsage, named(config, kScheduleSetting, enum_word(settings.schedule)),
                ": needs pipeline_parallel_size 2 or more, it is ", layout.pp_size, config.where(kPipelineSetting));
  if (interleaved || chunks == 1 || settings.schedule == ScheduleKind::kCustom) return;
  if (settings.schedule == ScheduleKind::kZeroBubbleV && chunks == 2 && layout.pp_size > 1) return;
  std::string rule = cat(": must be 1 with schedule ", enum_word(settings.schedule), config.where(kScheduleSetting));
  if (settings.schedule == ScheduleKind::kZeroBubbleV && layout.pp_size > 1)
    rule = cat(": schedule zb_v", config.where(kScheduleSetting), " has 2 stages a rank. The value that works: 2, or leave it out");
  else if (settings.schedule == ScheduleKind::kAuto) rule += ", which chooses it";
  else rule += ", or take schedule interleaved_1f1b";
  throw_error(ExitCode::kUsage, named(config, kVirtualSetting, chunks), rule);
}

void check_stages(const ModelShape& shape, const MeshLayout& layout, const Config& config, int64_t chunks) {
  int64_t L = shape.num_layers;
  // Division, as the product may overflow.
  if (layout.pp_size <= L / chunks) return;
  std::string stages =
      chunks == 1 ? cat(layout.pp_size, " pipeline stages")
                  : cat(layout.pp_size, " x ", chunks, " (virtual_pipeline_size", config.where(kVirtualSetting), ") pipeline stages");
  int64_t least = chunks == 1 ? 1 : 2, most = L / chunks;  // several stages a rank need two pipeline ranks
  std::string advice = most >= least ? cat("Sizes that work: ", least, most > least ? cat(" to ", most) : std::string())
                                     : cat("No size works with virtual_pipeline_size ", chunks, "; with 1: 1 to ", L);
  throw_error(ExitCode::kUsage, named(config, kPipelineSetting, layout.pp_size), ": the model's ", L, " layers do not fill ", stages,
              ", every stage needs at least one layer. ", advice);
}

void check_pipeline_axis(const ModelShape& shape, const MeshLayout& layout, const Config& config) {
  const DistributedConfig& settings = config.train.distributed;
  if (settings.schedule == ScheduleKind::kAuto && layout.pp_size > 1) {
    check_stages(shape, layout, config, 1);
    // Whatever the memory: that some kind goes with these layers and, where a limit is set, fits it.
    double memory = settings.pipeline_memory_bytes > 0 ? static_cast<double>(settings.pipeline_memory_bytes) : INFINITY;
    choose_schedule(shape, layout, config, /*on_device=*/false, memory);
    return;
  }
  // A schedule of a file first: how many stages a rank has stands in it.
  if (settings.schedule != ScheduleKind::kCustom)
    check_stages(shape, layout, config,
                 settings.schedule == ScheduleKind::kZeroBubbleV && layout.pp_size > 1 ? 2 : settings.virtual_pipeline_size);
  PipelinePlan plan = plan_pipeline(layout.pp_size, config);
  check_stages(shape, layout, config, plan.stages_a_rank());
  stage_layers(shape, plan, config);  // refuses a list of layers that does not match
}

void check_lengths(const ModelShape& shape, const Config& config) {
  int64_t length = config.preprocessor.sequence_length, limit = shape.max_positions;
  if (length < 0)
    throw_error(ExitCode::kUsage, named(config, "preprocessor.sequence_length", length),
                ": must be at least 1, or 0 for the model's own limit");
  if (length > limit)
    throw_error(ExitCode::kUsage, named(config, "preprocessor.sequence_length", length), ": the model has ", limit,
                " positions. Values that work: 1 to ", limit);
  if (config.preprocessor.pad_to > limit)
    throw_error(ExitCode::kUsage, named(config, "preprocessor.pad_to", config.preprocessor.pad_to), ": the model has ", limit,
                " positions");
  if (config.task == Task::kTextGeneration && length == 1)
    throw_error(ExitCode::kUsage, named(config, "preprocessor.sequence_length", length),
                ": a row of one token predicts nothing; text-generation needs at least 2");
}

void check_task(const ModelShape& shape, const Config& config) {
  bool classifier = shape.family == Family::kBert;
  if (config.task == Task::kTextClassification && !classifier)
    throw_error(ExitCode::kUsage, "task text-classification", config.where("task"), ": model_type ", shape.model_type,
                " has no classification head in plait. It works with bert; this model works with task text-generation");
  if (config.task == Task::kTextGeneration && classifier)
    throw_error(
        ExitCode::kUsage, "task text-generation", config.where("task"), ": model_type ", shape.model_type,
        " is not a causal language model. It works with gpt2, llama, mistral, qwen2; this model works with task text-classification");
}

void check_batch(const MeshLayout& layout, const Config& config) {
  const TrainConfig& train = config.train;
  auto positive = [&](const char* setting, int64_t value) {
    if (value < 1) throw_error(ExitCode::kUsage, named(config, setting, value), ": must be at least 1");
  };
  positive("train.batch_size", train.batch_size);
  positive("train.per_device_train_batch_size", train.per_device_train_batch_size);
  positive("train.distributed.gradient_accumulation_steps", train.distributed.gradient_accumulation_steps);
  if (train.batch_size < layout.dp_size)
    throw_error(ExitCode::kUsage, named(config, "train.batch_size", train.batch_size), ": smaller than data_parallel_size ", layout.dp_size,
                config.where("train.distributed.data_parallel_size"),
                ", so some data ranks would never have a row. Values that work: ", layout.dp_size, " or more");
}

}  // namespace

std::vector<int64_t> tensor_sizes_that_fit(const ModelShape& shape) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min(shape.num_heads, shape.vocab_size); ++size)
    if (shape.num_heads % size == 0 && kv_heads_fit(shape.num_kv_heads, size) && shape.ffn_size % size == 0) sizes.push_back(size);
  return sizes;
}

void check_layout(const ModelShape& shape, const MeshLayout& layout, const Config& config) {
  PLAIT_CHECK(shape.num_heads >= 1 && shape.num_kv_heads >= 1 && shape.num_layers >= 1, "a model shape without sizes");
  auto positive = [&](const char* setting, int64_t value) {
    if (value < 1) throw_error(ExitCode::kUsage, named(config, setting, value), ": must be at least 1");
  };
  positive("train.distributed.data_parallel_size", layout.dp_size);
  positive(kTensorSetting, layout.tp_size);
  positive(kPipelineSetting, layout.pp_size);
  int64_t zero_stage = config.train.distributed.zero_stage;
  if (zero_stage != 0)
    throw_error(ExitCode::kUsage, named(config, "train.distributed.zero_stage", zero_stage),
                ": this version keeps whole optimizer states on every data rank. The value that works: 0");
  check_task(shape, config);
  check_tensor_axis(shape, layout, config);
  check_schedule_settings(layout, config);
  check_pipeline_axis(shape, layout, config);
  check_lengths(shape, config);
  check_batch(layout, config);
}

std::string to_string(const MeshLayout& layout) {
  return cat("data ", layout.dp_size, " x tensor ", layout.tp_size, " x pipeline ", layout.pp_size);
}

std::vector<MeshLayout> layouts_that_fit(int64_t world_size, const MeshLayout& wanted, const ModelShape* shape) {
  std::vector<int64_t> tensor_sizes = shape ? tensor_sizes_that_fit(*shape) : std::vector<int64_t>();
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= world_size / d; ++d) {
    if (world_size % d != 0) continue;
    divisors.push_back(d);
    if (d != world_size / d) divisors.push_back(world_size / d);
  }
  std::vector<MeshLayout> fitting;
  for (int64_t tp : divisors) {
    if (shape && !std::binary_search(tensor_sizes.begin(), tensor_sizes.end(), tp)) continue;
    for (int64_t pp : divisors) {
      if (world_size / tp % pp != 0 || (shape && pp > shape->num_layers)) continue;
      fitting.push_back({world_size / tp / pp, pp, tp});
    }
  }
  auto distance = [&](const MeshLayout& layout) {
    int changed = (layout.dp_size != wanted.dp_size) + (layout.pp_size != wanted.pp_size) + (layout.tp_size != wanted.tp_size);
    auto ratio = [](int64_t a, int64_t b) {
      return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(std::max<int64_t>(1, b))));
    };
    double change = ratio(layout.dp_size, wanted.dp_size) + ratio(layout.pp_size, wanted.pp_size) + ratio(layout.tp_size, wanted.tp_size);
    return std::make_tuple(changed, change, -layout.dp_size, layout.tp_size);
  };
  std::sort(fitting.begin(), fitting.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  return fitting;
}

void check_world_size(const MeshLayout& layout, int64_t world_size, const Config& config) {
  // Factor by factor, as the product of absurd sizes would overflow.
  auto divides = [](int64_t size, int64_t whole) { return size >= 1 && whole % size == 0; };
  if (divides(layout.tp_size, world_size) && divides(layout.pp_size, world_size / layout.tp_size) &&
      layout.dp_size == world_size / layout.tp_size / layout.pp_size)
    return;
  constexpr size_t kShown = 6;
  std::vector<std::string> shown;
  auto fitting = layouts_that_fit(world_size, layout);
  for (size_t i = 0; i < std::min(kShown, fitting.size()); ++i) shown.push_back(to_string(fitting[i]));
  throw_error(ExitCode::kUsage, named(config, "train.distributed.data_parallel_size", layout.dp_size), " x ",
              named(config, kTensorSetting, layout.tp_size), " x ", named(config, kPipelineSetting, layout.pp_size),
              " is not the world size ", world_size, ". Sizes that fit ", world_size, " ranks: ", join(shown, "; "),
              fitting.size() > kShown ? cat("; and ", fitting.size() - kShown, " more") : std::string());
}

}  // namespace plait
