#include "plait/plan/stage_split.h"

#include <algorithm>

#include "plait/base/error.h"

namespace plait {

namespace {

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
  // One layer each, then every further layer to the cheapest stage, the earliest on a tie. As all layers cost the same this is
  // optimal: were a smaller largest stage possible, the last layer put on the largest stage would have found a cheaper one.
  std::vector<int64_t> sizes(num_stages, 1);
  std::vector<double> costs(num_stages, cost.layer);
  costs.front() += cost.embedding;
  costs.back() += cost.head;
  for (int64_t layer = num_stages; layer < num_layers; ++layer) {
    size_t cheapest = std::min_element(costs.begin(), costs.end()) - costs.begin();
    ++sizes[cheapest];
    costs[cheapest] += cost.layer;
  }
  return spans_of(sizes);
}

std::vector<Span> split_layers_by_rank(int64_t num_layers, const std::vector<int64_t>& stage_ranks, const LayerCost& cost) {
  const auto num_stages = static_cast<int64_t>(stage_ranks.size());
  if (num_layers < num_stages)
    throw_error(ExitCode::kUsage, num_layers, " layers do not fill ", num_stages, " pipeline stages: every stage needs at least one layer");
  std::vector<int64_t> sizes(num_stages, 1);
  std::vector<double> stage_costs(num_stages, cost.layer), rank_costs(num_stages);  // no more ranks than stages
  stage_costs.front() += cost.embedding;
  stage_costs.back() += cost.head;
  for (int64_t s = 0; s < num_stages; ++s) rank_costs[stage_ranks[s]] += stage_costs[s];
  for (int64_t layer = num_stages; layer < num_layers; ++layer) {
    int64_t best = 0;
    auto price = [&](int64_t s) { return std::pair(rank_costs[stage_ranks[s]], stage_costs[s]); };
    for (int64_t s = 1; s < num_stages; ++s)
      if (price(s) < price(best)) best = s;
    ++sizes[best];
    stage_costs[best] += cost.layer;
    rank_costs[stage_ranks[best]] += cost.layer;
  }
  return spans_of(sizes);
}

namespace {

std::vector<Span> balanced_layers(const ModelShape& shape, const PipelinePlan& plan, const Config& config) {
  LayerCost cost = layer_cost(shape, row_length(shape, config));
  if (plan.stage_ranks().empty()) return split_layers(shape.num_layers, plan.num_stages(), cost);
  return split_layers_by_rank(shape.num_layers, plan.stage_ranks(), cost);
}

}  // namespace

int64_t row_length(const ModelShape& shape, const Config& config) {
  return config.preprocessor.sequence_length > 0 ? config.preprocessor.sequence_length : std::max<int64_t>(1, shape.max_positions);
}

std::vector<Span> stage_layers(const ModelShape& shape, const PipelinePlan& plan, const Config& config) {
  const int64_t num_stages = plan.num_stages();
  const auto& given = config.train.distributed.pipeline_layers;
  if (given.empty()) return balanced_layers(shape, plan, config);
  std::string setting = cat("train.distributed.pipeline_layers [", join(given), "]", config.where("train.distributed.pipeline_layers"));
  if (static_cast<int64_t>(given.size()) != num_stages)
    throw_error(ExitCode::kUsage, setting, " has ", given.size(), " entries: needs ", num_stages,
                ", one for each pipeline stage (pipeline_parallel_size x ", plan.stages_a_rank(), " a rank)");
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
      for (Span span : balanced_layers(shape, plan, config)) balanced.push_back(span.size);
      advice = cat(", for example [", join(balanced), "]");
    }
    throw_error(ExitCode::kUsage, setting, " sums to ", sum, ": must sum to the model's ", shape.num_layers, " layers", advice);
  }
  return spans_of(given);
}

}  // namespace plait
