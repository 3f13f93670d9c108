#include "plait/plan/pipeline_plan.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "plait/base/error.h"
#include "plait/plan/layout_check.h"
#include "plait/plan/schedule_choice.h"
#include "plait/plan/stage_split.h"

namespace plait {
namespace {

ModelShape decoder(int64_t num_layers) {
  ModelShape s;
  s.family = Family::kLlama;
  s.model_type = "llama";
  s.vocab_size = 1000, s.hidden_size = 64, s.num_layers = num_layers, s.num_heads = 4, s.num_kv_heads = 2, s.head_size = 16;
  s.ffn_size = 128, s.max_positions = 32;
  s.gated_ffn = s.rms_norm = s.rotary = true;
  return s;
}

Config config_with(ScheduleKind kind, int64_t micro_batches) {
  Config config;
  config.task = Task::kTextGeneration;
  config.train.distributed.schedule = kind;
  config.train.distributed.gradient_accumulation_steps = micro_batches;
  config.train.distributed.pipeline_parallel_size = 2;
  config.train.batch_size = micro_batches * config.train.per_device_train_batch_size;
  return config;
}

// A schedule file in a folder of its own.
class TextFile {
 public:
  explicit TextFile(const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait-plan-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    folder_ = pattern;
    path = folder_ + "/schedule.txt";
    std::ofstream(path) << text;
  }
  ~TextFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path;

 private:
  std::string folder_;
};

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
    return error.what();
  }
  return "";
}

std::string refusal_of_file(const std::string& text, int64_t micro_batches = 2, int64_t virtual_size = 1) {
  TextFile file(text);
  Config config = config_with(ScheduleKind::kCustom, micro_batches);
  config.train.distributed.schedule_file = file.path;
  config.train.distributed.virtual_pipeline_size = virtual_size;
  std::string message = refusal([&] { check_layout(decoder(4), {.pp_size = 2}, config); });
  if (size_t at = message.find(file.path); at != std::string::npos) message.replace(at, file.path.size(), "FILE");
  return message;
}

TEST(PipelinePlan, StagesOfEachKind) {
  PipelinePlan plain(ScheduleKind::k1F1B, 3, 1), interleaved(ScheduleKind::kInterleaved1F1B, 2, 3), v(ScheduleKind::kZeroBubbleV, 3, 1);
  EXPECT_EQ(plain.last_stage_rank(), 2);
  EXPECT_EQ(interleaved.stages_of_rank(1), (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(interleaved.last_stage_rank(), 1);
  EXPECT_EQ(v.num_stages(), 6);
  EXPECT_EQ(v.stages_of_rank(0), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(v.stages_of_rank(2), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(v.last_stage_rank(), 0);
  for (const PipelinePlan* plan : {&plain, &interleaved, &v}) {
    EXPECT_TRUE(check_schedule(plan->training(4)).complete);
    EXPECT_TRUE(check_schedule(plan->forward(5)).complete);
    EXPECT_EQ(plan->forward(5).stage_ranks, plan->training(4).stage_ranks);
  }
  EXPECT_EQ(plan_pipeline(1, config_with(ScheduleKind::kZeroBubbleV, 2)).num_stages(), 1) << "one rank has no V";
}

TEST(PipelinePlan, AFileIsAnyPipelineOfItsSize) {
  for (const Schedule& schedule : {make_schedule(ScheduleKind::kZeroBubbleV, 2, 2, 3), make_schedule(ScheduleKind::kGPipe, 2, 1, 3),
                                   make_schedule(ScheduleKind::kInterleaved1F1B, 2, 2, 3)}) {
    TextFile file(to_text(schedule));
    Config config = config_with(ScheduleKind::kCustom, 3);
    config.train.distributed.schedule_file = file.path;
    PipelinePlan plan = plan_pipeline(2, config);
    EXPECT_EQ(plan.training(3), schedule);
    EXPECT_TRUE(check_schedule(plan.forward(4)).complete);
    EXPECT_EQ(refusal([&] { check_layout(decoder(4), {.pp_size = 2}, config); }), "");
    EXPECT_NE(describe_plan(plan, 3).find("schedule custom (" + schedule.name + ") on 2 pipeline ranks"), std::string::npos);
  }
}

TEST(PipelinePlan, AWrongFileIsRefusedByLineRankAndAction) {
  const std::string first = "mine 2 2 2\n", good0 = "0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n",
                    good1 = "1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1\n";
  EXPECT_EQ(refusal_of_file(first + good0 + good1), "");
  struct Case {
    std::string text, message;
  };
  const Case cases[] = {
      {first + "0F0 0SF0 0RB0 0B0 0RB1 0B1\n" + good1, "FILE:2: not a valid schedule: rank 0: 0F1 is missing"},
      {first + "0F0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n" + good1,
       "FILE:2: not a valid schedule: rank 0: 0SF0 is missing: rank 1 waits for it at 1RF0"},
      {first + good0 + "1RF0 1F0 1B0 1SB0 1RF1 1F1 1SB1\n", "FILE:3: not a valid schedule: rank 1: 1B1 is missing"},
      {first + "0F0 0SF0 0F1 0SF1 0RB0 0RB1 0B1 0B0\n" + good1,
       "FILE:2: not a valid schedule: rank 0: 0B1 comes before 0B0: the backwards"},
      {first + "0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1 0W0\n" + good1, "FILE:2: not a valid schedule: rank 0: 0W1 is missing"},
      {first + "0F0 0SF0 0RB0 0B0 0RB1 0B1 0F1 0SF1\n" + good1,
       "FILE:2: not a valid schedule: deadlock: rank 0 waits at 0RB1 for 1SB1; rank 1"},
      {first + good0 + "1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1XB1\n", "FILE:3: rank 1: action '1XB1'"},
      {first + good0, "FILE has lines for 1 pipeline ranks"},
      {"", "FILE is empty"},
      {"forward 2 2 2\n0F0 0SF0 0F1 0SF1\n1RF0 1F0 1RF1 1F1\n", "FILE:1: a schedule named forward has no backwards"},
      {"mine 3 3 2\n\n\n\n", "FILE:1: not a valid schedule"},
      {to_text(make_schedule(ScheduleKind::k1F1B, 4, 1, 2)), "FILE:1: the schedule is for 4 pipeline ranks, pipeline_parallel_size is 2"},
      {to_text(make_schedule(ScheduleKind::k1F1B, 2, 1, 5)),
       "FILE:1: the schedule is for 5 micro-batches, gradient_accumulation_steps is 2: both must be the same"},
      {to_text(make_schedule(ScheduleKind::kInterleaved1F1B, 2, 3, 2)), "4 layers do not fill 2 x 3"},
  };
  for (const Case& c : cases)
    EXPECT_NE(refusal_of_file(c.text).find(c.message), std::string::npos) << c.text << "said: " << refusal_of_file(c.text);
  EXPECT_NE(refusal_of_file(to_text(make_schedule(ScheduleKind::kZeroBubbleV, 2, 2, 2)), 2, 3).find("FILE has 2 stages a rank; say 2"),
            std::string::npos);
  Config config = config_with(ScheduleKind::kCustom, 2);
  config.train.distributed.schedule_file = "/nonexistent/schedule.txt";
  EXPECT_NE(refusal([&] { plan_pipeline(2, config); }).find("schedule_file /nonexistent/schedule.txt: the file cannot be read"),
            std::string::npos);
  config.train.distributed.schedule_file = "/";
  EXPECT_NE(refusal([&] { plan_pipeline(2, config); }).find("schedule_file /"), std::string::npos);
}

TEST(StageSplitOfAV, TheSumOfARankCounts) {
  auto sizes = [](const std::vector<Span>& spans) {
    std::vector<int64_t> out;
    for (Span span : spans) out.push_back(span.size);
    return out;
  };
  EXPECT_EQ(sizes(split_layers_by_rank(8, {0, 1, 1, 0}, {0, 1, 0})), (std::vector<int64_t>{2, 2, 2, 2}));
  // A head worth two layers: rank 0 gets 3 layers beside it, rank 1 five.
  EXPECT_EQ(sizes(split_layers_by_rank(8, {0, 1, 1, 0}, {0, 1, 2})), (std::vector<int64_t>{2, 3, 2, 1}));
  Config config = config_with(ScheduleKind::kZeroBubbleV, 2);
  EXPECT_EQ(stage_layers(decoder(8), plan_pipeline(2, config), config).size(), 4u);
  EXPECT_THROW(stage_layers(decoder(3), plan_pipeline(2, config), config), Error);
  config.train.distributed.pipeline_layers = {1, 2, 3, 2};
  EXPECT_EQ(sizes(stage_layers(decoder(8), plan_pipeline(2, config), config)), (std::vector<int64_t>{1, 2, 3, 2}));
}

TEST(LayoutCheckOfAV, TwoStagesARank) {
  Config config = config_with(ScheduleKind::kZeroBubbleV, 2);
  auto message = [&](int64_t layers) { return refusal([&] { check_layout(decoder(layers), {.pp_size = 2}, config); }); };
  EXPECT_EQ(message(4), "");
  EXPECT_NE(message(3).find("the model's 3 layers do not fill 2 x 2"), std::string::npos) << message(3);
  config.train.distributed.virtual_pipeline_size = 2;
  EXPECT_EQ(message(4), "");
  config.train.distributed.virtual_pipeline_size = 4;
  EXPECT_NE(message(8).find("schedule zb_v has 2 stages a rank. The value that works: 2"), std::string::npos) << message(8);
}

TEST(ActivationBytes, FollowTheFormula) {
  Config config = config_with(ScheduleKind::k1F1B, 2);
  config.train.per_device_train_batch_size = 3;
  config.train.dropout = 0;
  ModelShape shape = decoder(4);
  const double T = 3 * 32, H = 64, q = 64, k = 32, f = 128, N = 4, V = 1000;
  ActivationBytes one = activation_bytes(shape, config, 1);
  EXPECT_DOUBLE_EQ(one.layer, 1.1 * (4 * T * (4 * H + 2 * q + 2 * k + 3 * f) + 4 * N * T));
  EXPECT_DOUBLE_EQ(one.embedding, 4 * T * H);
  EXPECT_DOUBLE_EQ(one.head, 4 * T * (V + 2 * H));
  config.train.distributed.sequence_parallel = true;
  config.train.dtype = DType::kBFloat16;
  ActivationBytes split = activation_bytes(shape, config, 2);
  EXPECT_DOUBLE_EQ(split.layer, 1.1 * (2 * T * (4 * H + 2 * q + 2 * k + 3 * f) / 2 + 4 * N * T / 2));
  EXPECT_DOUBLE_EQ(split.layer_weights, 2 * T * (4 * H + (2 * q + 2 * k + 3 * f) / 2)) << "gathered rows are whole";
  EXPECT_DOUBLE_EQ(split.head, T * (4 * V / 2 + 2 * 2 * H)) << "the loss is float32";
  EXPECT_DOUBLE_EQ(split.head_weights, 2 * T * (V / 2 + H));
  config.train.dropout = 0.1;
  EXPECT_DOUBLE_EQ(activation_bytes(shape, config, 1).layer, 1.1 * (2 * T * (5 * H + 2 * q + 2 * k + 3 * f) + 8 * N * 3 * 32 * 32));
  config.train.dtype = DType::kFloat64;
  EXPECT_DOUBLE_EQ(activation_bytes(shape, config, 1).layer, 1.1 * (8 * T * (5 * H + 2 * q + 2 * k + 3 * f) + 16 * N * 3 * 32 * 32));
}

TEST(StateBytes, CountsTheFullestRank) {
  Config config = config_with(ScheduleKind::kAuto, 2);
  ModelShape shape = decoder(5);
  const double layer = 64 * (2 * 64 + 2 * 32) + 3 * 64 * 128, table = 1000 * 64;
  EXPECT_DOUBLE_EQ(state_bytes(shape, {.pp_size = 2}, config), 16 * (3 * layer + 2 * table));
  shape.tied_embeddings = true;
  config.train.dtype = DType::kBFloat16;
  EXPECT_DOUBLE_EQ(state_bytes(shape, {.pp_size = 1, .tp_size = 2}, config), 18 * (5 * layer + table) / 2);
}

TEST(StateBytes, CountsCompressedGradients) {
  Config config = config_with(ScheduleKind::kAuto, 2);
  const ModelShape shape = decoder(5);
  const double parameters = 64 * (2 * 64 + 2 * 32) * 5 + 3 * 64 * 128 * 5 + 2 * 1000 * 64;
  auto bytes = [&](GradientCompression algorithm, DType dtype, int64_t data_size = 4) {
    config.train.comm.compression.algorithm = algorithm;
    config.train.dtype = dtype;
    return state_bytes(shape, {.dp_size = data_size}, config) / parameters;
  };
  EXPECT_DOUBLE_EQ(bytes(GradientCompression::kPowerSGD, DType::kFloat32), 16 + 4 + 4);
  EXPECT_DOUBLE_EQ(bytes(GradientCompression::kPowerSGD, DType::kFloat32, 1), 16) << "one data rank sends nothing";
  EXPECT_DOUBLE_EQ(bytes(GradientCompression::kFloat8, DType::kBFloat16), 18 + 4 + 4 + 3);
  EXPECT_DOUBLE_EQ(bytes(GradientCompression::kBFloat16, DType::kFloat16), 18 + 8 + 4 + 6) << "a step may be taken back";
  EXPECT_DOUBLE_EQ(bytes(GradientCompression::kFloat16, DType::kFloat64), 32 + 8 + 8 + 6);
  EXPECT_DOUBLE_EQ(bytes(GradientCompression::kNccl, DType::kFloat16), 18 + 4 + 4 + 2);
  config.train.comm.compression.ratio = 0.1;
  EXPECT_DOUBLE_EQ(bytes(GradientCompression::kTopK, DType::kFloat32), 16 + 4 + 4 + 0.1 * 8 * 5);
}

TEST(ActivationBytes, APeakIsTheFullestMomentOfARank) {
  std::vector<Span> layers = {{0, 1}, {1, 1}};
  ActivationBytes bytes{.layer = 10, .embedding = 1, .head = 100, .layer_weights = 3, .head_weights = 7};
  EXPECT_EQ(peak_activation_bytes(make_schedule(ScheduleKind::k1F1B, 2, 1, 4), layers, bytes), 110) << "the last stage, one in flight";
  EXPECT_EQ(peak_activation_bytes(make_schedule(ScheduleKind::kGPipe, 2, 1, 4), layers, bytes), 440);
  // Rank 0: two forwards in flight; rank 1: a forward in flight beside deferred weight gradients.
  double h1 = peak_activation_bytes(make_schedule(ScheduleKind::kZeroBubbleH1, 2, 1, 4), layers, bytes);
  EXPECT_GT(h1, 110);
  EXPECT_LE(h1, 110 + 2 * 10);
}

TEST(ScheduleChoice, TakesTheShortestThatFits) {
  Config config = config_with(ScheduleKind::kAuto, 8);
  ModelShape shape = decoder(8);
  MeshLayout layout{.pp_size = 2};
  ScheduleChoice free_choice = choose_schedule(shape, layout, config, false, 1e12);
  EXPECT_TRUE(free_choice.fits);
  EXPECT_TRUE(free_choice.faster.empty());
  EXPECT_EQ(free_choice.slower.size(), 6u) << "1f1b, gpipe, zb_h1, zb_h2, zb_v, interleaved by 2 and 4";
  for (const auto& other : free_choice.slower) EXPECT_GE(other.seconds, free_choice.taken.seconds * (1 - 1e-6));
  // Less memory than the shortest needs: the next that fits, and what was too large is named.
  ScheduleChoice tight = choose_schedule(shape, layout, config, false, free_choice.taken.peak_bytes - 1);
  EXPECT_NE(tight.taken.peak_bytes, free_choice.taken.peak_bytes);
  EXPECT_LE(tight.taken.peak_bytes, free_choice.taken.peak_bytes - 1);
  ASSERT_FALSE(tight.faster.empty());
  EXPECT_EQ(tight.faster[0].kind, free_choice.taken.kind);
  std::vector<std::string> lines = describe_choice(tight);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("schedule auto: takes "), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("is shorter ("), std::string::npos) << lines[1];
  // Nothing fits what the machine has: the leanest. A limit that was asked for is refused, with the least that works.
  ScheduleChoice none = choose_schedule(shape, layout, config, false, 1);
  EXPECT_FALSE(none.fits);
  config.train.distributed.pipeline_memory_bytes = 1;
  std::string message = refusal([&] { check_layout(shape, layout, config); });
  EXPECT_NE(message.find("pipeline_memory_bytes 1: no schedule fits"), std::string::npos) << message;
  auto least = static_cast<int64_t>(none.taken.peak_bytes) + 1;
  EXPECT_NE(message.find(cat("needs ", least, " bytes")), std::string::npos) << message;
  config.train.distributed.pipeline_memory_bytes = least;
  EXPECT_EQ(refusal([&] { check_layout(shape, layout, config); }), "");
}

TEST(ScheduleChoice, KeepsToTheLayersAndTheGivenSplit) {
  Config config = config_with(ScheduleKind::kAuto, 4);
  for (int64_t layers : {2, 3, 4, 7}) {
    ScheduleChoice choice = choose_schedule(decoder(layers), {.pp_size = 2}, config, false, 1e12);
    EXPECT_LE(2 * choice.taken.stages_a_rank, layers);
    for (const auto& other : choice.slower) EXPECT_LE(2 * other.stages_a_rank, layers);
  }
  config.train.distributed.pipeline_layers = {1, 3, 2, 2};
  ScheduleChoice choice = choose_schedule(decoder(8), {.pp_size = 2}, config, false, 1e12);
  EXPECT_EQ(choice.taken.stages_a_rank, 2);
  EXPECT_EQ(choice.slower.size(), 1u) << "zb_v and interleaved";
  config.train.distributed.pipeline_layers = {3, 3, 2};
  EXPECT_NE(refusal([&] { check_layout(decoder(8), {.pp_size = 2}, config); }).find("pipeline_layers [3, 3, 2] has 3 entries"),
            std::string::npos);
}

}  // namespace
}  // namespace plait
