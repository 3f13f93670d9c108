#include "plait/plan/stage_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "plait/base/error.h"

namespace plait {
namespace {

using Sizes = std::vector<int64_t>;

Sizes sizes_of(const std::vector<Span>& spans) {
  Sizes sizes;
  int64_t next = 0;
  for (Span span : spans) {
    EXPECT_EQ(span.begin, next);
    next = span.end();
    sizes.push_back(span.size);
  }
  return sizes;
}

double largest(const Sizes& sizes, const LayerCost& cost) {
  double worst = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    worst = std::max(worst, sizes[i] * cost.layer + (i == 0 ? cost.embedding : 0) + (i + 1 == sizes.size() ? cost.head : 0));
  return worst;
}

// The least largest stage over every split there is.
double least_by_enumeration(int64_t layers, int64_t stages, const LayerCost& cost) {
  double best = std::numeric_limits<double>::infinity();
  Sizes sizes;
  std::function<void(int64_t)> place = [&](int64_t rest) {
    int64_t open = stages - static_cast<int64_t>(sizes.size());
    if (open == 1) {
      sizes.push_back(rest);
      best = std::min(best, largest(sizes, cost));
      sizes.pop_back();
      return;
    }
    for (int64_t n = 1; n <= rest - (open - 1); ++n) {
      sizes.push_back(n);
      place(rest - n);
      sizes.pop_back();
    }
  };
  place(layers);
  return best;
}

ModelShape llama_shape() {
  ModelShape shape;
  shape.family = Family::kLlama;
  shape.model_type = "llama";
  shape.vocab_size = 61, shape.hidden_size = 32, shape.num_layers = 5, shape.num_heads = 8, shape.num_kv_heads = 2, shape.head_size = 4;
  shape.ffn_size = 48, shape.max_positions = 24, shape.gated_ffn = true, shape.rotary = true;
  return shape;
}

TEST(StageSplit, NoSplitHasASmallerLargestStage) {
  for (LayerCost cost : {LayerCost{0, 1, 0}, LayerCost{0.1, 1, 2.5}, LayerCost{3, 1, 0}, LayerCost{0.5, 1, 0.5}, LayerCost{1, 7, 40}})
    for (int64_t layers = 1; layers <= 11; ++layers)
      for (int64_t stages = 1; stages <= layers; ++stages) {
        Sizes sizes = sizes_of(split_layers(layers, stages, cost));
        ASSERT_EQ(static_cast<int64_t>(sizes.size()), stages);
        ASSERT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), layers);
        ASSERT_GE(*std::min_element(sizes.begin(), sizes.end()), 1);
        ASSERT_NEAR(largest(sizes, cost), least_by_enumeration(layers, stages, cost), 1e-9) << layers << " on " << stages;
      }
}

TEST(StageSplit, EvenCostsGiveEvenStages) {
  EXPECT_EQ(sizes_of(split_layers(12, 4, {0, 1, 0})), (Sizes{3, 3, 3, 3}));
  EXPECT_EQ(sizes_of(split_layers(5, 2, {0, 1, 0})), (Sizes{3, 2}));
  EXPECT_EQ(sizes_of(split_layers(9, 8, {0, 1, 0})), (Sizes{2, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes_of(split_layers(130, 1, {0, 1, 0})), (Sizes{130}));
}

TEST(StageSplit, AHeavyHeadTakesLayersFromTheLastStage) {
  EXPECT_EQ(sizes_of(split_layers(12, 4, {0, 1, 2})), (Sizes{4, 4, 3, 1}));
  EXPECT_EQ(sizes_of(split_layers(6, 2, {0, 1, 50})), (Sizes{5, 1}));
  EXPECT_EQ(sizes_of(split_layers(6, 2, {50, 1, 0})), (Sizes{1, 5}));
}

TEST(StageSplit, TooFewLayersIsRefused) { EXPECT_THROW(split_layers(3, 4, {0, 1, 0}), Error); }

TEST(StageSplit, CostCountsTheWeightsATokenMeets) {
  ModelShape shape = llama_shape();
  LayerCost cost = layer_cost(shape, 24);
  // q 32x32, k and v 32x8 each, output 32x32, FFN 3 x 32x48; causal scores and values over half of 24 keys, width 32.
  EXPECT_DOUBLE_EQ(cost.layer, 2 * (1024 + 2 * 256 + 1024 + 3 * 1536) + 4 * 24 * 32 / 2);
  EXPECT_DOUBLE_EQ(cost.head, 2 * 32 * 61);
  EXPECT_LT(cost.embedding, cost.layer / 100);
  shape.family = Family::kBert;
  shape.num_labels = 12;
  EXPECT_DOUBLE_EQ(layer_cost(shape, 24).head, 2.0 * 32 * (32 + 12) / 24);
}

TEST(StageSplit, TheSplitOfARunIsTheGivenOneOrBalanced) {
  ModelShape shape = llama_shape();
  Config config;
  EXPECT_EQ(sizes_of(stage_layers(shape, plan_pipeline(2, config), config)), (Sizes{3, 2}));
  config.train.distributed.virtual_pipeline_size = 2;
  EXPECT_EQ(sizes_of(stage_layers(shape, plan_pipeline(2, config), config)).size(), 4u);
  config.train.distributed.virtual_pipeline_size = 1;
  config.train.distributed.pipeline_layers = {1, 4};
  EXPECT_EQ(sizes_of(stage_layers(shape, plan_pipeline(2, config), config)), (Sizes{1, 4}));
}

TEST(StageSplit, GivenLayersThatDoNotMatchAreRefused) {
  auto message = [](Sizes given, int64_t pp) -> std::string {
    Config config;
    config.train.distributed.pipeline_layers = given;
    config.origin["train.distributed.pipeline_layers"] = "run.yaml:7";
    try {
      stage_layers(llama_shape(), plan_pipeline(pp, config), config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({2, 2}, 2),
            "train.distributed.pipeline_layers [2, 2] (run.yaml:7) sums to 4: must sum to the model's 5 layers, for example [3, 2]");
  EXPECT_NE(message({5}, 2).find("has 1 entries: needs 2"), std::string::npos);
  EXPECT_NE(message({5, 0}, 2).find("0 is not a number of layers"), std::string::npos);
  EXPECT_NE(message({6, -1}, 2).find("6 is not a number of layers from 1 to 5"), std::string::npos);
  EXPECT_EQ(message({2, 3}, 2), "");
}

}  // namespace
}  // namespace plait
