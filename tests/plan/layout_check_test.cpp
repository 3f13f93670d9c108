#include "plait/plan/layout_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "plait/base/error.h"

namespace plait {
namespace {

// Decoder of the parity tests: sizes that divide nothing on purpose.
ModelShape decoder(int64_t layers = 5) {
  ModelShape shape;
  shape.family = Family::kLlama;
  shape.model_type = "llama";
  shape.vocab_size = 61, shape.hidden_size = 32, shape.num_layers = layers, shape.num_heads = 8, shape.num_kv_heads = 2,
  shape.head_size = 4;
  shape.ffn_size = 48, shape.max_positions = 24, shape.gated_ffn = true, shape.rotary = true;
  return shape;
}

ModelShape smollm2() {
  ModelShape shape = decoder(30);
  shape.vocab_size = 49152, shape.hidden_size = 576, shape.num_heads = 9, shape.num_kv_heads = 3, shape.head_size = 64,
  shape.ffn_size = 1536;
  shape.max_positions = 8192;
  return shape;
}

Config generation() {
  Config config;
  config.task = Task::kTextGeneration;
  return config;
}

std::string refusal(const ModelShape& shape, const MeshLayout& layout, const Config& config) {
  try {
    check_layout(shape, layout, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
    return error.what();
  }
  return "";
}

void expect_refusal(const ModelShape& shape, const MeshLayout& layout, const Config& config, std::vector<std::string> words) {
  std::string message = refusal(shape, layout, config);
  ASSERT_FALSE(message.empty()) << "accepted; expected: " << words.front();
  for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << "no '" << word << "' in: " << message;
}

// The 20 layouts that fit 8 ranks with powers of two, and three with a 3: only what the shape rules out is refused.
TEST(LayoutCheck, RefusesExactlyWhatTheShapeRulesOut) {
  std::set<std::string> refused;
  int accepted = 0;
  auto look = [&](int64_t dp, int64_t tp, int64_t pp, int64_t layers) {
    MeshLayout layout{.dp_size = dp, .pp_size = pp, .tp_size = tp};
    if (refusal(decoder(layers), layout, generation()).empty()) ++accepted;
    else refused.insert(cat(layers, " layers: ", to_string(layout)));
  };
  for (int64_t layers : {5, 9}) {
    for (int64_t dp : {1, 2, 4, 8})
      for (int64_t tp : {1, 2, 4, 8})
        for (int64_t pp : {1, 2, 4, 8})
          if (dp * tp * pp <= 8) look(dp, tp, pp, layers);
    look(3, 1, 1, layers), look(1, 1, 3, layers), look(3, 1, 2, layers), look(1, 3, 1, layers);
  }
  EXPECT_EQ(refused, (std::set<std::string>{"5 layers: data 1 x tensor 1 x pipeline 8", "5 layers: data 1 x tensor 3 x pipeline 1",
                                            "9 layers: data 1 x tensor 3 x pipeline 1"}));
  EXPECT_EQ(accepted, 2 * 24 - 3);
}

TEST(LayoutCheck, HeadsThatDoNotSplit) {
  Config config = generation();
  config.origin["train.distributed.model_parallel_size"] = "run.yaml:9";
  expect_refusal(
      smollm2(), {.tp_size = 2}, config,
      {"model_parallel_size 2 (run.yaml:9)", "9 attention heads", "Sizes that work", "9 heads, 3 key/value heads, FFN 1536): 1, 3"});
  EXPECT_EQ(refusal(smollm2(), {.tp_size = 3}, config), "");
  // 9 splits the heads, not the FFN.
  expect_refusal(smollm2(), {.tp_size = 9}, config, {"FFN size 1536 does not split evenly over 9", "): 1, 3"});
}

TEST(LayoutCheck, KeyValueHeadsSplitOrRepeat) {
  ModelShape shape = decoder();
  EXPECT_EQ(tensor_sizes_that_fit(shape), (std::vector<int64_t>{1, 2, 4, 8}));
  shape.num_heads = 12, shape.num_kv_heads = 4;
  EXPECT_EQ(tensor_sizes_that_fit(shape), (std::vector<int64_t>{1, 2, 4, 12}));
  expect_refusal(shape, {.tp_size = 3}, generation(), {"4 key/value heads", "1, 2, 4, 12"});
  expect_refusal(shape, {.tp_size = 6}, generation(), {"4 key/value heads"});
}

TEST(LayoutCheck, FfnAndVocabulary) {
  ModelShape shape = decoder();
  shape.ffn_size = 50;
  expect_refusal(shape, {.tp_size = 4}, generation(), {"FFN size 50", "): 1, 2"});
  shape = decoder();
  shape.vocab_size = 3;
  expect_refusal(shape, {.tp_size = 4}, generation(), {"vocabulary of 3", "): 1, 2"});
}

TEST(LayoutCheck, StagesNeedLayers) {
  Config config = generation();
  expect_refusal(decoder(), {.pp_size = 6}, config, {"pipeline_parallel_size 6", "5 layers", "1 to 5"});
  EXPECT_EQ(refusal(decoder(), {.pp_size = 5}, config), "");
  config.train.distributed.schedule = ScheduleKind::kInterleaved1F1B;
  config.train.distributed.virtual_pipeline_size = 2;
  EXPECT_EQ(refusal(decoder(), {.pp_size = 2}, config), "");
  expect_refusal(decoder(), {.pp_size = 3}, config, {"3 x 2 (virtual_pipeline_size)", "Sizes that work: 2"});
  config.train.distributed.virtual_pipeline_size = 3;
  expect_refusal(decoder(), {.pp_size = 2}, config, {"No size works with virtual_pipeline_size 3", "1 to 5"});
  expect_refusal(decoder(), {.pp_size = int64_t{1} << 62}, generation(), {"5 layers"});
}

TEST(LayoutCheck, ScheduleSettings) {
  Config config = generation();
  config.train.distributed.schedule = ScheduleKind::kInterleaved1F1B;
  expect_refusal(decoder(), {.pp_size = 2}, config, {"schedule interleaved_1f1b", "virtual_pipeline_size 2 or more, it is 1"});
  config.train.distributed.virtual_pipeline_size = 2;
  expect_refusal(decoder(), {.pp_size = 1}, config, {"schedule interleaved_1f1b", "pipeline_parallel_size 2 or more, it is 1"});
  config.train.distributed.schedule = ScheduleKind::kGPipe;
  expect_refusal(decoder(), {.pp_size = 2}, config, {"virtual_pipeline_size 2", "with schedule gpipe"});
  config.train.distributed.virtual_pipeline_size = 0;
  expect_refusal(decoder(), {.pp_size = 2}, config, {"virtual_pipeline_size 0", "at least 1"});
}

TEST(LayoutCheck, GivenLayers) {
  Config config = generation();
  config.train.distributed.pipeline_layers = {2, 2};
  expect_refusal(decoder(), {.pp_size = 2}, config, {"pipeline_layers [2, 2]", "5 layers"});
  config.train.distributed.pipeline_layers = {1, 4};
  EXPECT_EQ(refusal(decoder(), {.pp_size = 2}, config), "");
}

TEST(LayoutCheck, Lengths) {
  Config config = generation();
  config.preprocessor.sequence_length = 25;
  expect_refusal(decoder(), {}, config, {"sequence_length 25", "24 positions", "1 to 24"});
  config.preprocessor.sequence_length = 1;
  expect_refusal(decoder(), {}, config, {"sequence_length 1", "at least 2"});
  config.preprocessor.sequence_length = -1;
  expect_refusal(decoder(), {}, config, {"sequence_length -1"});
  config.preprocessor.sequence_length = 24;
  EXPECT_EQ(refusal(decoder(), {}, config), "");
  config.preprocessor.pad_to = 32;
  expect_refusal(decoder(), {}, config, {"pad_to 32", "24 positions"});
}

TEST(LayoutCheck, TaskAndFamily) {
  Config config;
  expect_refusal(decoder(), {}, config, {"task text-classification", "llama", "bert"});
  ModelShape bert = decoder();
  bert.family = Family::kBert;
  bert.model_type = "bert";
  EXPECT_EQ(refusal(bert, {}, config), "");
  config.task = Task::kTextGeneration;
  expect_refusal(bert, {}, config, {"task text-generation", "bert", "gpt2, llama"});
}

TEST(LayoutCheck, ZeroAndBatchAndSizes) {
  Config config = generation();
  config.train.distributed.zero_stage = 2;
  expect_refusal(decoder(), {.dp_size = 2}, config, {"zero_stage 2", "works: 0"});
  config = generation();
  config.train.batch_size = 3;
  expect_refusal(decoder(), {.dp_size = 4}, config, {"batch_size 3", "data_parallel_size 4", "4 or more"});
  EXPECT_EQ(refusal(decoder(), {.dp_size = 3}, config), "");
  config.train.batch_size = 0;
  expect_refusal(decoder(), {}, config, {"batch_size 0"});
  config = generation();
  config.train.distributed.gradient_accumulation_steps = 0;
  expect_refusal(decoder(), {}, config, {"gradient_accumulation_steps 0"});
  expect_refusal(decoder(), {.dp_size = 0}, generation(), {"data_parallel_size 0"});
  expect_refusal(decoder(), {.tp_size = -2}, generation(), {"model_parallel_size -2"});
}

TEST(LayoutCheck, SequenceParallelOnOneTensorRankChangesNothing) {
  Config config = generation();
  config.train.distributed.sequence_parallel = true;
  EXPECT_EQ(refusal(decoder(), {.tp_size = 1}, config), "");
  EXPECT_EQ(refusal(decoder(), {.tp_size = 4}, config), "");
}

TEST(WorldSize, MustBeTheProduct) {
  Config config;
  config.origin["train.distributed.pipeline_parallel_size"] = "command line";
  check_world_size({2, 2, 2}, 8, config);
  try {
    check_world_size({2, 3, 2}, 8, config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_STREQ(
        error.what(),
        "data_parallel_size 2 x model_parallel_size 2 x pipeline_parallel_size 3 (command line) is not the world size 8. Sizes that "
        "fit 8 ranks: data 2 x tensor 2 x pipeline 2; data 2 x tensor 1 x pipeline 4; data 1 x tensor 2 x pipeline 4; data 4 x "
        "tensor 2 x pipeline 1; data 2 x tensor 4 x pipeline 1; data 4 x tensor 1 x pipeline 2; and 4 more");
  }
  EXPECT_THROW(check_world_size({int64_t{1} << 32, int64_t{1} << 32, 1}, 0x7fffffff, config), Error);
  EXPECT_THROW(check_world_size({0, 1, 1}, 1, config), Error);
  EXPECT_THROW(check_world_size({1, 1, 1}, 2, config), Error);
}

TEST(WorldSize, LayoutsThatFit) {
  auto all = layouts_that_fit(8, {1, 1, 1});
  EXPECT_EQ(all.size(), 10u);
  for (const MeshLayout& layout : all) EXPECT_EQ(layout.world_size(), 8);
  ModelShape shape = smollm2();
  for (const MeshLayout& layout : layouts_that_fit(12, {2, 2, 3}, &shape)) EXPECT_TRUE(layout.tp_size == 1 || layout.tp_size == 3);
  EXPECT_EQ(to_string(layouts_that_fit(12, {2, 2, 3}, &shape).front()), "data 2 x tensor 3 x pipeline 2");
  EXPECT_EQ(layouts_that_fit(7, {1, 1, 1}, &shape).size(), 2u);
}

}  // namespace
}  // namespace plait
