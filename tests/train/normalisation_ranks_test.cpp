// The gradient is that of the sum of all token losses over the number of targets of the whole global batch, and nothing else: no factor of
// accumulation, data ranks, empty rows or buckets. SGD without clipping, as Adam and clipping hide factors.
#include <gtest/gtest.h>

#include <limits>

#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

Config exact() { return parity_config(DType::kFloat64, OptimizerKind::kSGD, 0); }

Samples rows_of(const std::vector<int64_t>& lengths) {
  Samples all = d0_samples(61), s;
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::vector<int32_t> ids = all.ids[i % 2 == 0 ? 1 : 6];  // 24 tokens each
    ids.resize(static_cast<size_t>(lengths[i]));
    for (auto& id : ids) id = (id + static_cast<int32_t>(i) * 7) % 61;
    s.ids.push_back(ids);
  }
  return s;
}

TEST(Normalisation, EveryAccumulationCount) {
  Samples samples = d0_samples(61);
  RunRecord reference = run_layout(exact(), t0_shape(2), {1, 1, 1}, samples, 4);
  for (const auto& layout : {grid(1, 1, 1), grid(2, 1, 1), grid(3, 1, 1), grid(1, 1, 2), grid(2, 2, 2)})
    for (int64_t ga : {1, 2, 3, 4, 6, 12}) {
      Config config = exact();
      config.train.distributed.gradient_accumulation_steps = ga;
      expect_same_run(run_layout(config, t0_shape(2), layout, samples, 4), reference, 1e-10, 1e-10, cat(name_of(layout), " ga ", ga));
    }
}

// The order of the samples decides which rank gets few targets; it must not matter.
TEST(Normalisation, EveryGroupingOfTheSamples) {
  Samples samples = d0_samples(61);
  RunRecord reference = run_layout(exact(), t0_shape(2), {1, 1, 1}, samples, 2);
  for (int turn : {1, 5, 7}) {
    Samples turned = samples;
    std::rotate(turned.ids.begin(), turned.ids.begin() + turn, turned.ids.end());
    std::rotate(turned.classes.begin(), turned.classes.begin() + turn, turned.classes.end());
    Config config = exact();
    config.train.distributed.gradient_accumulation_steps = 2;
    expect_same_run(run_layout(config, t0_shape(2), grid(4, 1, 1), turned, 2), reference, 1e-10, 1e-10, cat("turned by ", turn));
  }
}

TEST(Normalisation, DoubledBatchChangesNothing) {
  for (Task task : {Task::kTextGeneration, Task::kTextClassification}) {
    Samples once = d0_samples(61), twice = once;
    twice.ids.insert(twice.ids.end(), once.ids.begin(), once.ids.end());
    twice.classes.insert(twice.classes.end(), once.classes.begin(), once.classes.end());
    ModelShape shape = task == Task::kTextGeneration ? t0_shape(2) : tiny_bert_shape(2);
    Config config = exact();
    config.task = task;
    RunRecord a = run_layout(config, shape, {1, 1, 1}, once, 2);
    config.train.distributed.gradient_accumulation_steps = 2;
    for (const auto& layout : {grid(1, 1, 1), grid(2, 1, 1), grid(3, 1, 2)})
      expect_same_run(run_layout(config, shape, layout, twice, 2), a, 1e-10, 1e-10, name_of(layout));
  }
}

// Rows of one token have no target: as a sample, a micro-batch, or a whole rank.
TEST(Normalisation, RowsWithoutTarget) {
  for (const auto& lengths : std::vector<std::vector<int64_t>>{{9, 1, 5, 1}, {1, 1, 7, 12}, {7, 12, 1, 1}, {1, 6, 1, 1}}) {
    Samples samples = rows_of(lengths);
    RunRecord reference = run_layout(exact(), t0_shape(2), {1, 1, 1}, samples, 3);
    for (const auto& layout : {grid(2, 1, 1), grid(4, 1, 1), grid(2, 2, 1), grid(2, 1, 2), grid(1, 2, 2)})
      for (int64_t ga : {1, 2, 4})
        for (bool sequence : {false, true}) {
          if (sequence && layout.tp_size == 1) continue;
          Config config = exact();
          config.train.distributed.gradient_accumulation_steps = ga;
          config.train.distributed.sequence_parallel = sequence;
          expect_same_run(run_layout(config, t0_shape(2), layout, samples, 3), reference, 1e-10, 1e-10,
                          cat(name_of(layout), " ga ", ga, " first length ", lengths[0]));
        }
  }
}

TEST(Normalisation, BatchWithoutAnyTarget) {
  Samples samples = rows_of({1, 1, 1, 1});
  for (const auto& layout : {grid(1, 1, 1), grid(2, 1, 1), grid(2, 2, 2)}) {
    Config config = exact();
    config.train.optimizer.weight_decay = 0;
    Hooks hooks;
    RunRecord run = run_layout(config, t0_shape(2), layout, samples, 2, hooks);
    EXPECT_EQ(run.losses, (std::vector<double>{0, 0})) << name_of(layout);
    EXPECT_EQ(run.norms, (std::vector<double>{0, 0})) << name_of(layout);
    EXPECT_EQ(full_norm(run.first_gradients), 0);
  }
}

// Fewer rows than micro-batches x data ranks: some have none at all.
TEST(Normalisation, EmptyMicroBatches) {
  Samples samples = rows_of({9, 4, 6});
  RunRecord reference = run_layout(exact(), t0_shape(2), {1, 1, 1}, samples, 3);
  for (const auto& layout : {grid(1, 1, 1), grid(3, 1, 1), grid(2, 1, 2), grid(1, 2, 2), grid(2, 2, 2)})
    for (int64_t ga : {2, 5}) {
      Config config = exact();
      config.train.distributed.gradient_accumulation_steps = ga;
      expect_same_run(run_layout(config, t0_shape(2), layout, samples, 3), reference, 1e-10, 1e-10, cat(name_of(layout), " ga ", ga));
    }
}

// Sequence slices of one row, or of none: the last ranks hold only filling.
TEST(Normalisation, FewerTokensThanTensorRanks) {
  Samples samples = rows_of({2, 1, 3, 5});
  for (auto [shape, task] : {std::pair{t0_shape(2), Task::kTextGeneration}, std::pair{t0b_shape(2), Task::kTextGeneration},
                             std::pair{tiny_bert_shape(2), Task::kTextClassification}}) {
    samples.classes = {0, 2, 1, 1};
    Config config = exact();
    config.task = task;
    config.train.dropout = 0.1;
    RunRecord reference = run_layout(config, shape, {1, 1, 1}, samples, 3);
    for (const auto& layout : {grid(1, 8, 1), grid(1, 4, 2), grid(2, 4, 1)}) {
      config.train.distributed.gradient_accumulation_steps = 4;
      config.train.distributed.sequence_parallel = true;
      expect_same_run(run_layout(config, shape, layout, samples, 3), reference, 1e-10, 1e-10, cat(shape.model_type, " ", name_of(layout)));
    }
  }
}

// Keys that are never attended to, in the middle of rows and at their start (a causal query may then see nothing: still finite).
TEST(Normalisation, HiddenKeys) {
  Samples samples = rows_of({9, 4, 12, 7});
  samples.classes = {0, 2, 1, 1};
  for (const auto& ids : samples.ids) samples.masks.emplace_back(ids.size(), 1);
  samples.masks[0][0] = samples.masks[0][1] = samples.masks[2][5] = samples.masks[3][2] = 0;
  Samples seen = samples;
  seen.masks.clear();
  for (auto [shape, task] : {std::pair{t0_shape(2), Task::kTextGeneration}, std::pair{tiny_bert_shape(2), Task::kTextClassification}}) {
    Config config = exact();
    config.task = task;
    RunRecord reference = run_layout(config, shape, {1, 1, 1}, samples, 2);
    EXPECT_NE(reference.losses[0], run_layout(config, shape, {1, 1, 1}, seen, 1).losses[0]) << "the mask changed nothing";
    for (const auto& layout : {grid(2, 1, 1), grid(1, 2, 2), grid(2, 2, 2)}) {
      config.train.distributed.gradient_accumulation_steps = 2;
      config.train.distributed.sequence_parallel = layout.tp_size > 1;
      expect_same_run(run_layout(config, shape, layout, samples, 2), reference, 1e-10, 1e-10, cat(shape.model_type, " ", name_of(layout)));
    }
  }
}

// Gradient buffers start every step at zero.
TEST(Normalisation, SameBatchTwiceAtRateZero) {
  Config config = exact();
  config.train.optimizer.lr = 0;
  config.train.distributed.gradient_accumulation_steps = 3;
  RunRecord run = run_layout(config, t0_shape(2), grid(2, 1, 2), d0_samples(61), 3);
  EXPECT_EQ(run.norms[0], run.norms[1]);
  EXPECT_EQ(run.norms[0], run.norms[2]);
  EXPECT_EQ(run.losses[0], run.losses[2]);
}

// When a bucket is sent, and how large it is, decides no bit; nor does a second run.
TEST(Normalisation, OverlapAndBucketsAreBitEqual) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16})
    for (const auto& layout : {grid(2, 1, 1), grid(4, 1, 2), grid(2, 2, 2)}) {
      Config config = parity_config(dtype, OptimizerKind::kAdamW, 0.5);
      config.train.distributed.gradient_accumulation_steps = 3;
      std::optional<RunRecord> first;
      for (int64_t bucket_bytes : {4, 28, 256, 4 << 20})
        for (bool overlap : {true, false}) {
          config.train.distributed.bucket_size_bytes = bucket_bytes;
          config.train.distributed.overlap_grad_reduce = overlap;
          RunRecord run = run_layout(config, t0_shape(2), layout, d0_samples(61), 3);
          if (!first) first = run;
          expect_bit_equal(run, *first, cat(name_of(layout), " bucket ", bucket_bytes, overlap ? " overlap" : ""));
        }
    }
}

TEST(Normalisation, SameLayoutTwiceIsBitEqual) {
  Config config = parity_config(DType::kFloat32, OptimizerKind::kAdamW, 0.5);
  config.train.distributed.gradient_accumulation_steps = 2;
  config.train.dropout = 0.1;
  config.train.distributed.sequence_parallel = true;
  RunRecord first = run_layout(config, t0_shape(4), grid(2, 2, 2), d0_samples(61), 3);
  for (int i = 0; i < 3; ++i) expect_bit_equal(run_layout(config, t0_shape(4), grid(2, 2, 2), d0_samples(61), 3), first, "again");
}

// A packed row is the sum of its documents as rows of their own, and a document does not see the one before it.
TEST(Packing, PackedRowEqualsSeparateRows) {
  Samples apart = rows_of({5, 7, 9, 3, 12}), packed;
  auto join = [&](std::vector<size_t> parts) {
    std::vector<int32_t> ids, starts;
    for (size_t p : parts) {
      if (!ids.empty()) starts.push_back(static_cast<int32_t>(ids.size()));
      ids.insert(ids.end(), apart.ids[p].begin(), apart.ids[p].end());
    }
    packed.ids.push_back(ids);
    packed.document_starts.push_back(starts);
  };
  join({0, 1});
  join({2, 3});
  join({4});
  EXPECT_EQ(count_all_targets(packed, Task::kTextGeneration), count_all_targets(apart, Task::kTextGeneration));
  for (auto shape : {t0_shape(4), t0b_shape(4)}) {
    RunRecord reference = run_layout(exact(), shape, {1, 1, 1}, apart, 3);
    for (const auto& layout : {grid(1, 1, 1), grid(3, 1, 1), grid(1, 4, 1), grid(1, 1, 4), grid(2, 2, 2)})
      for (bool sequence : {false, true}) {
        if (sequence && layout.tp_size == 1) continue;
        Config config = exact();
        config.train.distributed.gradient_accumulation_steps = 2;
        config.train.distributed.sequence_parallel = sequence;
        expect_same_run(run_layout(config, shape, layout, packed, 3), reference, 1e-10, 1e-10, cat("packed ", name_of(layout)));
      }
  }
}

TEST(Packing, SecondDocumentDoesNotSeeTheFirst) {
  Samples packed = rows_of({14});
  packed.document_starts = {{6}};
  packed.labels = packed.ids;
  for (size_t t = 0; t < 6; ++t) packed.labels[0][t] = -100;
  Samples changed = packed;
  changed.ids[0][3] = (changed.ids[0][3] + 1) % 61;
  for (const auto& layout : {grid(1, 1, 1), grid(1, 2, 2)}) {
    Config config = exact();
    config.train.optimizer.lr = 0;
    RunRecord a = run_layout(config, t0_shape(3), layout, packed, 1), b = run_layout(config, t0_shape(3), layout, changed, 1);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.norms, b.norms);
  }
}

}  // namespace
}  // namespace plait::testing
