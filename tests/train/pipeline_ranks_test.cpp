// Every schedule computes what one process computes, for any number of micro-batches of any length, empty ones among them.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "plait/config/enum_names.h"
#include "plait/plan/schedule_choice.h"
#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

Config scheduled(ScheduleKind kind, int64_t num_micro_batches) {
  Config config = parity_config(DType::kFloat64, OptimizerKind::kSGD, 0);
  config.train.distributed.schedule = kind;
  config.train.distributed.virtual_pipeline_size = kind == ScheduleKind::kInterleaved1F1B ? 2 : 1;
  config.train.distributed.gradient_accumulation_steps = num_micro_batches;
  return config;
}

// 9 layers: at pp 4 with two chunks a rank, 8 stages of unequal size.
void check_schedules(int64_t dp, int64_t tp, const std::vector<int64_t>& pipeline_sizes, const Samples& samples) {
  RunRecord reference = run_layout(scheduled(ScheduleKind::k1F1B, 1), t0_shape(9), {1, 1, 1}, samples, 2);
  for (int64_t pp : pipeline_sizes)
    for (ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kInterleaved1F1B, ScheduleKind::kZeroBubbleH1,
                              ScheduleKind::kZeroBubbleH2, ScheduleKind::kZeroBubbleV}) {
      if (kind == ScheduleKind::kInterleaved1F1B && pp == 1) continue;
      for (int64_t m = 1; m <= 2 * pp + 1; ++m)
        expect_same_run(run_layout(scheduled(kind, m), t0_shape(9), grid(dp, tp, pp), samples, 2), reference, 1e-10, 1e-10,
                        cat(enum_word(kind), " pp ", pp, " micro-batches ", m));
    }
}

TEST(Pipeline, SchedulesEqualOneProcess) { check_schedules(1, 1, {1, 2, 3, 4}, d0_samples(61)); }

// Three rows in up to nine micro-batches: most are empty, and on one data rank all but one.
TEST(Pipeline, FewRows) {
  Samples samples = d0_samples(61);
  samples.ids.resize(3);
  samples.classes.resize(3);
  check_schedules(1, 1, {3}, samples);
  check_schedules(2, 1, {2}, samples);
}

// All schedules give one stage's gradients in one order: the same bits.
TEST(Pipeline, SchedulesAreBitEqual) {
  Samples samples = d0_samples(61);
  auto run = [&](ScheduleKind kind, int64_t m) {
    Config config = scheduled(kind, m);
    config.train.dtype = DType::kFloat32;
    return run_layout(config, t0_shape(9), grid(1, 1, 4), samples, 2);
  };
  expect_bit_equal(run(ScheduleKind::kGPipe, 5), run(ScheduleKind::k1F1B, 5), "gpipe and 1f1b");
  expect_bit_equal(run(ScheduleKind::kZeroBubbleH1, 5), run(ScheduleKind::k1F1B, 5), "zb_h1 and 1f1b");
  expect_bit_equal(run(ScheduleKind::kZeroBubbleH2, 5), run(ScheduleKind::k1F1B, 5), "zb_h2 and 1f1b");
}

ModelShape untied(ModelShape shape) {
  shape.tied_embeddings = false;
  return shape;
}

// On a V the first and the last stage share a rank. Without a tied table the gradients of every parameter are added as in 1F1B; with one,
// the single copy adds both uses as it goes, as one process does (SchedulesEqualOneProcess). The norm alone groups its terms by rank.
TEST(Pipeline, TheVIsBitEqual) {
  Samples samples = d0_samples(61);
  for (int64_t pp : {2, 3, 4})
    for (int64_t m : {1, 3, 9}) {
      Config config = scheduled(ScheduleKind::kZeroBubbleV, m);
      config.train.dtype = DType::kFloat32;
      RunRecord v = run_layout(config, untied(t0_shape(9)), grid(1, 1, pp), samples, 2);
      config.train.distributed.schedule = ScheduleKind::k1F1B;
      RunRecord plain = run_layout(config, untied(t0_shape(9)), grid(1, 1, pp), samples, 2);
      for (size_t i = 0; i < plain.norms.size(); ++i) EXPECT_NEAR(v.norms[i], plain.norms[i], 1e-14 * plain.norms[i]);
      v.norms = plain.norms;
      expect_bit_equal(v, plain, cat("zb_v pp ", pp, " micro-batches ", m));
    }
}

// Every family, with the other axes beside it and several buckets under way during the last backward.
TEST(Pipeline, TheVWithOtherAxes) {
  Samples samples = d0_samples(61);
  struct Model {
    const char* name;
    ModelShape shape;
    Task task;
  };
  for (const Model& model :
       {Model{"T0", t0_shape(9), Task::kTextGeneration}, Model{"T0b", t0b_shape(9), Task::kTextGeneration},
        Model{"untied", untied(t0b_shape(9)), Task::kTextGeneration}, Model{"bert", tiny_bert_shape(9), Task::kTextClassification}}) {
    Config config = scheduled(ScheduleKind::k1F1B, 1);
    config.task = model.task;
    RunRecord reference = run_layout(config, model.shape, {1, 1, 1}, samples, 2);
    for (const auto& [layout, m] : {std::pair{grid(2, 1, 2), 4}, std::pair{grid(1, 2, 2), 5}, std::pair{grid(2, 2, 2), 3},
                                    std::pair{grid(1, 1, 4), 8}, std::pair{grid(2, 1, 3), 6}}) {
      config = scheduled(ScheduleKind::kZeroBubbleV, m);
      config.task = model.task;
      config.train.distributed.sequence_parallel = layout.tp_size > 1 && m % 2 == 1;
      expect_same_run(run_layout(config, model.shape, layout, samples, 2), reference, 1e-10, 1e-10,
                      cat(model.name, " ", name_of(layout), " micro-batches ", m));
    }
  }
}

// A file of actions, as a user writes it.
class ScheduleFile {
 public:
  explicit ScheduleFile(const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait-schedule-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    folder_ = pattern;
    std::ofstream(path()) << text;
  }
  ~ScheduleFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path() const { return folder_ + "/schedule.txt"; }

 private:
  std::string folder_;
};

// Schedules of files: the built-in ones written out are bit-equal to themselves; orders and placements that nobody builds equal one process.
TEST(Pipeline, SchedulesOfFiles) {
  Samples samples = d0_samples(61);
  auto of_file = [](const ScheduleFile& file, int64_t m) {
    Config config = scheduled(ScheduleKind::kCustom, m);
    config.train.distributed.schedule_file = file.path();
    return config;
  };
  for (ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kInterleaved1F1B, ScheduleKind::kZeroBubbleH2, ScheduleKind::kZeroBubbleV}) {
    ScheduleFile file(to_text(make_schedule(kind, 2, kind == ScheduleKind::kInterleaved1F1B ? 2 : 1, 3)));
    expect_bit_equal(run_layout(of_file(file, 3), t0_shape(9), grid(1, 1, 2), samples, 2),
                     run_layout(scheduled(kind, 3), t0_shape(9), grid(1, 1, 2), samples, 2), enum_word(kind));
  }
  const char* texts[] = {
      // Forwards in another order, weight gradients late.
      "mine 2 2 2\n0F1 0SF1 0F0 0SF0 0RB0 0B0 0RB1 0B1 0W0 0W1\n1RF1 1F1 1RF0 1F0 1B0 1SB0 1B1 1SB1 1W0 1W1\n",
      // The first half of the model on one rank, the second on the other: the middle border is the only one.
      "halves 2 4 2 ranks 0 0 1 1\n0F0 1F0 1SF0 0F1 1F1 1SF1 1RB0 1B0 0B0 1RB1 1B1 0B1\n"
      "2RF0 2F0 3F0 3B0 2B0 2SB0 2RF1 2F1 3F1 3B1 2B1 2SB1\n",
      // Backwards: the last rank has the first stage. And round a corner: neither end of the pipeline has an end of the model.
      "corner 3 3 2 ranks 1 2 0\n2RF0 2F0 2B0 2SB0 2RF1 2F1 2B1 2SB1\n0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n"
      "1RF0 1F0 1SF0 1RF1 1F1 1SF1 1RB0 1B0 1SB0 1RB1 1B1 1SB1\n",
      "turned 2 2 2 ranks 1 0\n1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1\n0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n",
  };
  for (const ModelShape& shape : {t0_shape(5), untied(t0b_shape(5))}) {
    RunRecord reference = run_layout(scheduled(ScheduleKind::k1F1B, 1), shape, {1, 1, 1}, samples, 2);
    for (const char* text : texts) {
      ScheduleFile file(text);
      int64_t pp = parse_schedule(text).pp_size;
      for (const auto& layout : {grid(1, 1, pp), grid(2, pp == 2 ? 2 : 1, pp)})
        expect_same_run(run_layout(of_file(file, 2), shape, layout, samples, 2), reference, 1e-10, 1e-10, cat(text, name_of(layout)));
    }
  }
}

// auto: with room whatever is predicted shortest, with little the leanest; the same on all ranks, and the numbers are those of any other.
TEST(Pipeline, AutoChoosesAlikeOnAllRanks) {
  Samples samples = d0_samples(61);
  RunRecord reference = run_layout(scheduled(ScheduleKind::k1F1B, 1), t0_shape(9), {1, 1, 1}, samples, 2);
  int leaner = 0;
  for (const auto& [layout, little] : {std::pair{grid(1, 1, 2), false},
                                       {grid(1, 1, 2), true},
                                       {grid(2, 1, 3), false},
                                       {grid(2, 1, 3), true},
                                       {grid(1, 2, 4), false},
                                       {grid(1, 2, 4), true}}) {
    Config config = scheduled(ScheduleKind::kAuto, 5);
    const ScheduleCandidate shortest = choose_schedule(t0_shape(9), layout, config, false, 1e15).taken;
    const ScheduleCandidate leanest = choose_schedule(t0_shape(9), layout, config, false, 0).taken;
    if (little) config.train.distributed.pipeline_memory_bytes = static_cast<int64_t>(leanest.peak_bytes) + 1;
    const ScheduleCandidate want = little ? leanest : shortest;
    if (leanest.peak_bytes < shortest.peak_bytes) ++leaner;
    std::mutex mutex;
    std::set<std::string> seen;
    Hooks hooks;
    hooks.prepare = [&](Mesh&, ParallelModel& model) {
      std::lock_guard lock(mutex);
      ASSERT_EQ(model.notices.size(), 2u);
      seen.insert(model.notices[0]);
      EXPECT_EQ(model.pipeline.kind(), want.kind) << name_of(layout) << " " << little;
      EXPECT_EQ(model.pipeline.stages_a_rank(), want.stages_a_rank) << name_of(layout) << " " << little;
      EXPECT_EQ(cat("schedule auto: takes ", enum_word(model.pipeline.kind())),
                model.notices[0].substr(0, model.notices[0].find_first_of(", ", 21)));
    };
    expect_same_run(run_layout(config, t0_shape(9), layout, samples, 2, hooks), reference, 1e-10, 1e-10, name_of(layout));
    EXPECT_EQ(seen.size(), 1u);
  }
  EXPECT_GT(leaner, 0) << "little memory changes something";
}

// Interleaving with every other axis, and with more chunks a rank.
TEST(Pipeline, InterleavedWithOtherAxes) {
  Samples samples = d0_samples(61);
  RunRecord reference = run_layout(scheduled(ScheduleKind::k1F1B, 1), t0_shape(9), {1, 1, 1}, samples, 2);
  for (const auto& [layout, chunks] :
       {std::pair{grid(2, 2, 2), 2}, std::pair{grid(2, 1, 2), 4}, std::pair{grid(1, 2, 3), 3}, std::pair{grid(1, 1, 4), 2}})
    for (int64_t m : {1, 4, 6}) {
      Config config = scheduled(ScheduleKind::kInterleaved1F1B, m);
      config.train.distributed.virtual_pipeline_size = chunks;
      config.train.distributed.sequence_parallel = layout.tp_size > 1;
      expect_same_run(run_layout(config, t0_shape(9), layout, samples, 2), reference, 1e-10, 1e-10,
                      cat(name_of(layout), " chunks ", chunks, " micro-batches ", m));
    }
}

// Layers as the user split them.
TEST(Pipeline, GivenSplit) {
  Samples samples = d0_samples(61);
  Config config = scheduled(ScheduleKind::k1F1B, 3);
  RunRecord reference = run_layout(config, t0_shape(5), {1, 1, 1}, samples, 2);
  for (const auto& split : std::vector<std::vector<int64_t>>{{3, 1, 1}, {1, 1, 3}, {1, 3, 1}}) {
    config.train.distributed.pipeline_layers = split;
    expect_same_run(run_layout(config, t0_shape(5), grid(1, 2, 3), samples, 2), reference, 1e-10, 1e-10, cat("first stage ", split[0]));
  }
}

}  // namespace
}  // namespace plait::testing
