#include "plait/plan/stage_split.h"

#include <algorithm>
#include <limits>

#include "plait/base/error.h"

namespace plait {

namespace {

double stage_cost(int64_t layers, bool first, bool last, const LayerCost& cost) {
  return layers * cost.layer + (first ? cost.embedding : 0) + (last ? cost.head : 0);
}

// Sizes with the least combine(stage costs) among the splits whose stages all cost at most `limit`, by dynamic programming over
// (stages so far, layers so far). `combine` must be monotone in both arguments. On a tie the earlier stages keep more layers.
template <class Combine>
std::vector<int64_t> best_sizes(int64_t num_layers, int64_t num_stages, const LayerCost& cost, double limit, Combine combine) {
  constexpr double kImpossible = std::numeric_limits<double>::infinity();
  std::vector<double> best(num_layers + 1, kImpossible);  // [k]: the first k layers on the stages so far
  best[0] = 0;
  std::vector<std::vector<int64_t>> taken(num_stages, std::vector<int64_t>(num_layers + 1));
  for (int64_t stage = 0; stage < num_stages; ++stage) {
    std::vector<double> next(num_layers + 1, kImpossible);
    for (int64_t end = stage + 1; end <= num_layers - (num_stages - 1 - stage); ++end) {
      for (int64_t layers = 1; layers <= end; ++layers) {
        double own = stage_cost(layers, stage == 0, stage == num_stages - 1, cost);
        if (own > limit) break;
        double total = combine(best[end - layers], own);
        if (total < next[end] * (1 - 1e-12)) {
          next[end] = total;
          taken[stage][end] = layers;
        }
      }
    }
    best = std::move(next);
  }
  std::vector<int64_t> sizes(num_stages);
  for (int64_t stage = num_stages - 1, end = num_layers; stage >= 0; --stage) end -= sizes[stage] = taken[stage][end];
  return sizes;
}

std::vector<Span> spans_of(const std::vector<int64_t>& sizes) {
  std::vector<Span> spans;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    spans.push_back({begin, size});
    begin += size;
  }
  return spans;
}

}  // namespace

LayerCost layer_cost(const ModelShape& shape, int64_t sequence_length) {
  double H = shape.hidden_size, S = std::max<int64_t>(1, sequence_length), V = shape.vocab_size;
  double query_width = static_cast<double>(shape.num_heads * shape.head_size);
  double kv_width = static_cast<double>(shape.num_kv_heads * shape.head_size);
  LayerCost cost;
  cost.embedding = 2 * H * (shape.rotary ? 1 : 2);
  double weights = H * (query_width + 2 * kv_width) + query_width * H + (shape.gated_ffn ? 3 : 2) * H * static_cast<double>(shape.ffn_size);
  // Scores and their product with the values; a causal row sees half of its keys.
  cost.layer = 2 * weights + 4 * S * query_width * (shape.causal ? 0.5 : 1.0);
  cost.head = shape.family == Family::kBert ? 2 * H * (H + static_cast<double>(shape.num_labels)) / S : 2 * H * V;
  return cost;
}

std::vector<Span> split_layers(int64_t num_layers, int64_t num_stages, const LayerCost& cost) {
  PLAIT_CHECK(num_stages >= 1, num_stages);
  if (num_layers < num_stages)
    throw_error(ExitCode::kUsage, num_layers, " layers do not fill ", num_stages, " pipeline stages: every stage needs at least one layer");
  auto smallest_largest = best_sizes(num_layers, num_stages, cost, std::numeric_limits<double>::infinity(),
                                     [](double a, double b) { return std::max(a, b); });
  double limit = 0;
  for (int64_t stage = 0; stage < num_stages; ++stage)
    limit = std::max(limit, stage_cost(smallest_largest[stage], stage == 0, stage == num_stages - 1, cost));
  return spans_of(best_sizes(num_layers, num_stages, cost, limit * (1 + 1e-12), [](double a, double b) { return a + b * b; }));
}

int64_t row_length(const ModelShape& shape, const Config& config) {
  return config.preprocessor.sequence_length > 0 ? config.preprocessor.sequence_length : std::max<int64_t>(1, shape.max_positions);
}

std::vector<Span> stage_layers(const ModelShape& shape, int64_t pipeline_size, const Config& config) {
  int64_t num_stages = pipeline_size * config.train.distributed.virtual_pipeline_size;
  const auto& given = config.train.distributed.pipeline_layers;
  if (given.empty()) return split_layers(shape.num_layers, num_stages, layer_cost(shape, row_length(shape, config)));
  std::string setting = cat("train.distributed.pipeline_layers [", join(given), "]", config.where("train.distributed.pipeline_layers"));
  if (static_cast<int64_t>(given.size()) != num_stages)
    throw_error(ExitCode::kUsage, setting, " has ", given.size(), " entries: needs ", num_stages,
                ", one for each pipeline stage (pipeline_parallel_size x virtual_pipeline_size)");
  int64_t sum = 0;
  for (int64_t layers : given) {
    if (layers < 1 || layers > shape.num_layers)
      throw_error(ExitCode::kUsage, setting, ": ", layers, " is not a number of layers from 1 to ", shape.num_layers);
    sum += layers;
  }
  if (sum != shape.num_layers) {
    std::string advice;
    if (shape.num_layers >= num_stages) {
      std::vector<int64_t> balanced;
      for (Span span : split_layers(shape.num_layers, num_stages, layer_cost(shape, row_length(shape, config)))) balanced.push_back(span.size);
      advice = cat(", for example [", join(balanced), "]");
    }
    throw_error(ExitCode::kUsage, setting, " sums to ", sum, ": must sum to the model's ", shape.num_layers, " layers", advice);
  }
  return spans_of(given);
}

}  // namespace plait
