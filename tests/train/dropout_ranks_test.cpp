// Dropout masks are functions of (seed, step, sample, position, layer, site, channel): every layout drops the same elements.
#include <gtest/gtest.h>

#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

Config dropping(Task task, double p = 0.1) {
  Config config = parity_config(DType::kFloat64, OptimizerKind::kSGD, 0);
  config.task = task;
  config.train.dropout = p;
  return config;
}

TEST(Dropout, SameInEveryLayout) {
  Samples samples = d0_samples(61);
  for (auto [shape, task] : {std::pair{t0_shape(5), Task::kTextGeneration}, std::pair{t0b_shape(5), Task::kTextGeneration},
                             std::pair{tiny_bert_shape(5), Task::kTextClassification}}) {
    Config config = dropping(task);
    RunRecord reference = run_layout(config, shape, {1, 1, 1}, samples, 3);
    config.train.dropout = 0.0;
    RunRecord without = run_layout(config, shape, {1, 1, 1}, samples, 1);
    EXPECT_NE(reference.losses[0], without.losses[0]) << "nothing was dropped";
    for (const auto& layout :
         {grid(1, 1, 1), grid(2, 1, 1), grid(3, 1, 2), grid(1, 2, 1), grid(1, 8, 1), grid(1, 1, 5), grid(2, 2, 2), grid(1, 4, 2)})
      for (bool sequence : {false, true}) {
        if (sequence && layout.tp_size == 1) continue;
        config = dropping(task);
        config.train.distributed.sequence_parallel = sequence;
        config.train.distributed.gradient_accumulation_steps = 2;
        expect_same_run(run_layout(config, shape, layout, samples, 3), reference, 1e-10, 1e-10,
                        cat(shape.model_type, " ", name_of(layout), sequence ? " sequence parallel" : ""));
      }
  }
}

// At rate 0 only the masks differ from step to step and from seed to seed.
TEST(Dropout, DiffersBetweenStepsAndSeeds) {
  Config config = dropping(Task::kTextGeneration);
  config.train.optimizer.lr = 0;
  RunRecord run = run_layout(config, t0_shape(2), grid(1, 2, 1), d0_samples(61), 4);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(run.losses[i], run.losses[j]) << i << " " << j;
  RunRecord same = run_layout(config, t0_shape(2), grid(1, 2, 1), d0_samples(61), 4);
  EXPECT_EQ(run.losses, same.losses);
}

// Equal rows of one batch get masks of their own: the loss of two copies is not that of one.
TEST(Dropout, DiffersBetweenSamples) {
  Samples one, two;
  one.ids = {d0_samples(61).ids[1]};
  two.ids = {one.ids[0], one.ids[0]};
  Config config = dropping(Task::kTextGeneration, 0.3);
  EXPECT_NE(run_layout(config, t0_shape(2), {1, 1, 1}, one, 1).losses[0], run_layout(config, t0_shape(2), {1, 1, 1}, two, 1).losses[0]);
  EXPECT_NE(run_layout(config, t0_shape(2), {1, 1, 1}, one, 1).losses[0], run_layout(config, t0_shape(2), grid(2, 1, 1), two, 1).losses[0]);
}

}  // namespace
}  // namespace plait::testing
