// Layers -> virtual stages: contiguous, in order, at least one layer each, the embedding on the first stage and the head on the
// last. Every rank computes the same split from the model shape and the settings alone.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/model_shape.h"
#include "plait/plan/partition.h"
#include "plait/plan/pipeline_plan.h"

namespace plait {

// Work of one token, forward: floating-point operations (2 for each multiply-add of a weight it meets).
struct LayerCost {
  double embedding = 0;  // the look-ups and their norm; a row, not a matrix product
  double layer = 0;      // one block: projections, FFN and, over `sequence_length` keys, attention
  double head = 0;       // vocabulary projection of a language model; pooler and classifier, once a row, of a classifier
};

// sequence_length: tokens a row, for attention and for what is done once a row. At least 1.
LayerCost layer_cost(const ModelShape& shape, int64_t sequence_length);

// Layers of each of `num_stages` stages, the largest stage's cost as small as possible; among those splits the evenest.
// Error(kUsage) when num_layers < num_stages.
std::vector<Span> split_layers(int64_t num_layers, int64_t num_stages, const LayerCost& cost);

// The same where a rank holds several stages and their sum counts (`stage_ranks`: [stage] pipeline rank): the largest rank's cost as
// small as a layer-by-layer choice makes it, its stages as even as possible.
std::vector<Span> split_layers_by_rank(int64_t num_layers, const std::vector<int64_t>& stage_ranks, const LayerCost& cost);

// The split of a run: settings.pipeline_layers when given, else balanced: by stage, and where the plan has a table of its own by rank.
// Error(kUsage) names pipeline_layers when it has another count than stages, an entry below 1, or another sum than L.
std::vector<Span> stage_layers(const ModelShape& shape, const PipelinePlan& plan, const Config& config);

// Tokens a row as the run trains them: preprocessor.sequence_length or the model's limit.
int64_t row_length(const ModelShape& shape, const Config& config);

}  // namespace plait
