#include "plait/config/resolve.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "plait/base/error.h"
#include "plait/config/setting_info.h"

namespace plait {

namespace {

const std::string kSizes = "train.distributed.";

struct SizeRef {
  const char* name;
  int64_t* value;
  bool given;
};

// A strategy of one axis fixes the two other sizes to 1.
void apply_strategy(const Config& config, std::vector<SizeRef>* sizes, const std::string& strategy) {
  const char* axis = nullptr;
  if (strategy.empty() || strategy == "hybrid_parallel") return;
  if (strategy == "data_parallel") axis = "data_parallel_size";
  if (strategy == "tensor_parallel") axis = "model_parallel_size";
  if (strategy == "pipeline_parallel") axis = "pipeline_parallel_size";
  std::string where = config.where("train.distributed.distributed_strategy");
  if (strategy == "auto_parallel")
    throw_error(ExitCode::kUsage, "distributed_strategy auto_parallel", where,
                ": choosing the layout is not available yet; give the sizes with hybrid_parallel");
  if (!axis) {
    std::vector<std::string> known = {"data_parallel", "tensor_parallel", "pipeline_parallel", "hybrid_parallel", "auto_parallel"};
    throw_error(ExitCode::kUsage, "distributed_strategy ", strategy, where, " is not ", rule_of_words(strategy, known, "hybrid_parallel"));
  }
  for (auto& size : *sizes) {
    if (std::string(size.name) == axis) continue;
    if (size.given && *size.value != 1)
      throw_error(ExitCode::kUsage, "distributed_strategy ", strategy, where, " contradicts ", size.name, " ", *size.value,
                  config.where(kSizes + size.name), "; nearest valid: ", size.name, " 1, or distributed_strategy hybrid_parallel");
    *size.value = 1;
    size.given = true;
  }
}

[[noreturn]] void batch_error(const Config& config, const GivenBatch& given, const std::string& fits) {
  const auto& t = config.train;
  auto term = [&](const char* name, bool is_given, int64_t value, const std::string& setting) {
    return is_given ? cat(name, " ", value, config.where(setting)) : std::string(name);
  };
  throw_error(ExitCode::kUsage, "the batch does not come out: ", term("batch_size", given.batch_size, t.batch_size, "train.batch_size"),
              " = ",
              term("per_device_train_batch_size", given.per_device, t.per_device_train_batch_size, "train.per_device_train_batch_size"),
              " x data_parallel_size ", t.distributed.data_parallel_size, config.where(kSizes + "data_parallel_size"), " x ",
              term("gradient_accumulation_steps", given.accumulation, t.distributed.gradient_accumulation_steps,
                   kSizes + "gradient_accumulation_steps"),
              "; nearest valid: ", fits);
}

// "batch_size 24 or 32": multiples of `unit` around n.
std::string nearest_batches(int64_t n, int64_t unit) {
  int64_t below = n / unit * unit, above = below + unit;
  return below == 0 ? cat("batch_size ", above) : cat("batch_size ", below, " or ", above);
}

}  // namespace

int64_t largest_divisor_up_to(int64_t n, int64_t limit) {
  for (int64_t d = std::min(n, limit); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

std::string fitting_layouts(int64_t world_size, const DistributedConfig& wanted, size_t most) {
  std::vector<std::tuple<double, int64_t, int64_t, int64_t>> found;
  auto off = [](int64_t a, int64_t b) { return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b))); };
  for (int64_t dp = 1; dp <= world_size; ++dp) {
    if (world_size % dp != 0) continue;
    int64_t rest = world_size / dp;
    for (int64_t tp = 1; tp <= rest; ++tp) {
      if (rest % tp != 0) continue;
      int64_t pp = rest / tp;
      // A change of the data size is the cheapest, so it counts least.
      double distance =
          0.9 * off(dp, wanted.data_parallel_size) + off(tp, wanted.model_parallel_size) + off(pp, wanted.pipeline_parallel_size);
      found.emplace_back(distance, dp, tp, pp);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (const auto& [distance, dp, tp, pp] : found)
    if (out.size() < most) out.push_back(cat(dp, " x ", tp, " x ", pp));
  return join(out);
}

void resolve_layout(Config* config, GivenSizes given, const std::string& strategy, int64_t world_size) {
  auto& d = config->train.distributed;
  std::vector<SizeRef> sizes = {{"data_parallel_size", &d.data_parallel_size, given.data},
                                {"model_parallel_size", &d.model_parallel_size, given.model},
                                {"pipeline_parallel_size", &d.pipeline_parallel_size, given.pipeline}};
  apply_strategy(*config, &sizes, strategy);
  int64_t fixed = 1;
  std::vector<SizeRef*> open;
  for (auto& size : sizes) {
    if (!size.given) {
      *size.value = 1;
      open.push_back(&size);
    }
    fixed *= *size.value;
  }
  if (world_size == 0) return;
  // open[0] is data_parallel_size whenever that was left out.
  bool can_derive = open.size() == 1 || (!open.empty() && !given.data && open[0]->value == &d.data_parallel_size);
  if (can_derive && world_size % fixed == 0) {
    *open[0]->value = world_size / fixed;
    return;
  }
  if (fixed == world_size) return;
  std::vector<std::string> terms;
  for (const auto& size : sizes)
    if (size.given) terms.push_back(cat(size.name, " ", *size.value, config->where(kSizes + size.name)));
  std::string undecided;
  if (open.size() > 1 && !can_derive) undecided = cat(" (", open[0]->name, " and ", open[1]->name, " are not given and count as 1)");
  if (can_derive) undecided = cat(" (", fixed, " does not divide ", world_size, ": no ", open[0]->name, " fits)");
  throw_error(ExitCode::kUsage, join(terms, " x "), terms.size() > 1 ? cat(" = ", fixed) : "", ", but there ",
              world_size == 1 ? "is 1 rank" : cat("are ", world_size, " ranks"), undecided,
              "; sizes that fit (data x model x pipeline): ", fitting_layouts(world_size, d, 4));
}

void resolve_batch(Config* config, GivenBatch given, int64_t default_per_device) {
  auto& t = config->train;
  int64_t dp = t.distributed.data_parallel_size;
  int64_t& batch = t.batch_size;
  int64_t& per_device = t.per_device_train_batch_size;
  int64_t& accumulation = t.distributed.gradient_accumulation_steps;
  if (given.batch_size && given.per_device && given.accumulation) {
    if (batch == per_device * dp * accumulation) return;
    std::string fits = cat("batch_size ", per_device * dp * accumulation);
    if (batch % (dp * accumulation) == 0) fits += cat(", or per_device_train_batch_size ", batch / (dp * accumulation));
    if (batch % (dp * per_device) == 0) fits += cat(", or gradient_accumulation_steps ", batch / (dp * per_device));
    // A resolved file says all three; another layout on the command line then needs to know which one to let go.
    const char* let_go = batch % (dp * accumulation) == 0 ? "train.per_device_train_batch_size"
                         : batch % (dp * per_device) == 0 ? "train.distributed.gradient_accumulation_steps"
                                                          : nullptr;
    if (let_go) fits += cat("; to keep batch_size ", batch, " in this layout leave out ", let_go, " or say --set ", let_go, "=null");
    else if (batch % dp == 0)
      fits += cat("; to keep batch_size ", batch, " in this layout say --set train.per_device_train_batch_size=null --set ",
                  "train.distributed.gradient_accumulation_steps=null");
    batch_error(*config, given, fits);
  }
  if (given.batch_size && given.per_device) {
    if (batch % (per_device * dp) != 0) batch_error(*config, given, nearest_batches(batch, per_device * dp));
    accumulation = batch / (per_device * dp);
    return;
  }
  if (given.batch_size && given.accumulation) {
    if (batch % (dp * accumulation) != 0) batch_error(*config, given, nearest_batches(batch, dp * accumulation));
    per_device = batch / (dp * accumulation);
    return;
  }
  if (given.per_device || given.accumulation) {
    if (!given.per_device) per_device = default_per_device;
    if (!given.accumulation) accumulation = 1;
    batch = per_device * dp * accumulation;
    return;
  }
  if (!given.batch_size) batch = default_per_device * dp;
  if (batch % dp != 0) batch_error(*config, given, nearest_batches(batch, dp));
  int64_t rows = batch / dp, stages = t.distributed.pipeline_parallel_size;
  accumulation = stages > 1 ? largest_divisor_up_to(rows, 2 * stages) : 1;
  per_device = rows / accumulation;
}

}  // namespace plait
