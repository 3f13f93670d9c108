// What each rank holds: nothing is lost, nothing counted twice, and splitting really splits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "plait/comm/launch.h"
#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

struct Held {
  int64_t elements = 0;    // of this rank's parameters
  int64_t owned = 0;       // of those it writes on export
  int64_t counted = 0;     // of those that enter the norm here
  int64_t flat_bytes = 0;  // masters, gradients, weights and moments
};

std::map<int64_t, Held> hold(const ModelShape& shape, Task task, const MeshLayout& layout, DType dtype, bool sequence = false) {
  Config config = parity_config(dtype, OptimizerKind::kAdamW, 0.5);
  config.task = task;
  config.train.distributed.sequence_parallel = sequence;
  std::map<int64_t, Held> held;
  std::mutex mutex;
  run_thread_ranks(layout, [&](Mesh& mesh) {
    HeadOptions head{task, task == Task::kTextClassification ? 3 : 0, 0.0};
    auto model = parallelize(config, shape, head, mesh, at::kCPU);
    Held h;
    for (const auto& p : model->store.parameters()) {
      h.elements += p->numel;
      if (p->owner) h.owned += p->numel;
      if (p->counts_in_norm) h.counted += p->numel;
    }
    for (const auto& t : {model->store.flat_masters(), model->store.flat_gradients()}) h.flat_bytes += static_cast<int64_t>(t.nbytes());
    if (model->store.low_precision()) h.flat_bytes += static_cast<int64_t>(model->store.flat_weights().nbytes());
    for (const auto& s : model->optimizer->state()) h.flat_bytes += static_cast<int64_t>(s.flat.nbytes());
    std::lock_guard lock(mutex);
    held[mesh.rank()] = h;
  });
  return held;
}

int64_t whole(const ModelShape& shape, Task task) {
  int64_t total = 0;
  for (const auto& t : model_tensors(shape, {task, task == Task::kTextClassification ? 3 : 0, 0.0})) {
    int64_t n = 1;
    for (int64_t s : t.shape) n *= s;
    total += n;
  }
  return total;
}

// T0 by hand: table 61x32; a layer has q 32x32, k and v 8x32, o 32x32, gate, up and down 48x32, two norms; one norm at the end.
TEST(ParameterSplit, CountIsTheFormula) {
  EXPECT_EQ(whole(t0_shape(5), Task::kTextGeneration), 61 * 32 + 5 * (2 * 32 * 32 + 2 * 8 * 32 + 3 * 48 * 32 + 2 * 32) + 32);
  EXPECT_EQ(whole(t0b_shape(5), Task::kTextGeneration),
            61 * 32 + 24 * 32 + 5 * (4 * 32 * 32 + 4 * 32 + 2 * 48 * 32 + 48 + 32 + 4 * 32) + 2 * 32);
}

TEST(ParameterSplit, OwnedPiecesAreTheModel) {
  for (auto [shape_of, task] : {std::pair{&t0_shape, Task::kTextGeneration}, std::pair{&t0b_shape, Task::kTextGeneration},
                                std::pair{&tiny_bert_shape, Task::kTextClassification}})
    for (const auto& layout : lay()) {
      ModelShape shape = shape_of(layout.pp_size == 8 ? 9 : 5);
      for (bool sequence : {false, true}) {
        if (sequence && layout.tp_size == 1) continue;
        int64_t owned = 0, counted = 0;
        for (const auto& [rank, held] : hold(shape, task, layout, DType::kFloat32, sequence)) {
          if (layout.coordinate_of(rank).dp != 0) continue;
          owned += held.owned;
          counted += held.counted;
        }
        EXPECT_EQ(owned, whole(shape, task)) << name_of(layout);
        EXPECT_EQ(counted, whole(shape, task)) << name_of(layout);
      }
    }
}

// State bytes a rank: fp32 has master, gradient and two moments; 16 bits one weight more. A tensor rank of 2 holds half, but for norms.
TEST(ParameterSplit, TensorRanksHoldTheirShare) {
  ModelShape shape = t0_shape(4);
  shape.vocab_size = 512;
  shape.num_kv_heads = 8;
  for (auto [dtype, bytes] : {std::pair{DType::kFloat32, 16.0}, std::pair{DType::kBFloat16, 18.0}, std::pair{DType::kFloat64, 32.0}}) {
    auto alone = hold(shape, Task::kTextGeneration, {1, 1, 1}, dtype)[0];
    double total = static_cast<double>(alone.elements);
    EXPECT_EQ(alone.elements, whole(shape, Task::kTextGeneration));
    EXPECT_NEAR(static_cast<double>(alone.flat_bytes) / total, bytes, 0.02 * bytes);
    int64_t norms = (2 * 4 + 1) * 32;
    for (int64_t tp : {2, 4, 8})
      for (const auto& [rank, held] : hold(shape, Task::kTextGeneration, grid(1, tp, 1), dtype)) {
        EXPECT_EQ(held.elements, (alone.elements - norms) / tp + norms) << "tp " << tp << " rank " << rank;
        EXPECT_NEAR(static_cast<double>(held.flat_bytes), bytes * static_cast<double>(held.elements),
                    0.02 * static_cast<double>(held.flat_bytes));
      }
    // Four stages hold a quarter of the layers each; table and norm stand at the ends.
    int64_t layers = alone.elements - 512 * 32 - 32, stages = 0;
    for (const auto& [rank, held] : hold(shape, Task::kTextGeneration, grid(1, 1, 2), dtype)) {
      EXPECT_LT(held.elements, alone.elements);
      stages += held.elements;
    }
    EXPECT_EQ(stages, layers + 2 * 512 * 32 + 32) << "only the tied table is held twice";
  }
}

// Starting values do not depend on the layout.
TEST(ParameterSplit, StartingValuesAreTheSameInEveryLayout) {
  for (auto shape_of : {t0_shape, t0b_shape}) {
    std::optional<RunRecord> first;
    for (const auto& layout : {grid(1, 1, 1), grid(2, 1, 1), grid(1, 8, 1), grid(1, 1, 5), grid(1, 4, 2), grid(2, 2, 2)}) {
      Config config = parity_config(DType::kFloat32, OptimizerKind::kSGD, 0);
      config.train.optimizer.lr = 0;
      config.train.optimizer.weight_decay = 0;
      Hooks hooks;
      hooks.all_random = false;
      RunRecord run = run_layout(config, shape_of(5), layout, d0_samples(61), 1, hooks);
      if (!first) first = run;
      EXPECT_TRUE(run.weights == first->weights) << name_of(layout);
    }
  }
}

}  // namespace
}  // namespace plait::testing
