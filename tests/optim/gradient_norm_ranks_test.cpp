#include "plait/optim/gradient_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "plait/optim/loss_scaler.h"
#include "plait/optim/optimizer.h"
#include "plait/plan/partition.h"

namespace plait {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Parameter parameter_of(const std::string& name, int64_t numel, bool counts = true) {
  Parameter p;
  p.name = name;
  p.global_shape = p.local_shape = {numel};
  p.owner_stages = {0};
  p.counts_in_norm = counts;
  return p;
}

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Runs `gradients(mesh, store)` on every rank of the layout and returns the norms by rank, which must be bit-equal.
double norm_over(const MeshLayout& layout, double norm_type, at::ScalarType type,
                 const std::function<void(Mesh&, ParameterStore&)>& build) {
  std::vector<double> norms(static_cast<size_t>(layout.world_size()));
  run_thread_ranks(layout, [&](Mesh& mesh) {
    ParameterStore store;
    build(mesh, store);
    norms[static_cast<size_t>(mesh.rank())] = global_gradient_norm(store, mesh, norm_type);
  });
  for (double norm : norms) EXPECT_EQ(bits_of(norm), bits_of(norms[0]));
  return norms[0];
}

TEST(GradientNorm, StagesOfThreeAndFourGiveFive) {
  for (at::ScalarType type : {at::kFloat, at::kDouble}) {
    auto build = [&](Mesh& mesh, ParameterStore& store) {
      store.declare(parameter_of("w", 1));
      store.allocate(type, at::kCPU);
      store.flat_gradients().fill_(mesh.coordinate().pp == 0 ? 3.0 : -4.0);
    };
    EXPECT_DOUBLE_EQ(norm_over({1, 2, 1}, 2.0, type, build), 5.0);
    EXPECT_DOUBLE_EQ(norm_over({2, 2, 1}, 2.0, type, build), 5.0);  // data ranks are copies, not parts
    EXPECT_DOUBLE_EQ(norm_over({1, 2, 1}, kInfinity, type, build), 4.0);
  }
}

// Squares: sharded parts sum to 9, a replicated one is 16 and counts once.
TEST(GradientNorm, ShardedNineAndReplicatedSixteenGiveFive) {
  for (int64_t tp_size : {2, 3, 4})
    EXPECT_NEAR(norm_over({1, 1, tp_size}, 2.0, at::kDouble,
                          [&](Mesh& mesh, ParameterStore& store) {
                            store.declare(parameter_of("sharded", 1));
                            store.declare(parameter_of("replicated", 1, mesh.coordinate().tp == 0));
                            store.allocate(at::kDouble, at::kCPU);
                            store.parameters()[0]->gradient.fill_(3.0 / std::sqrt(static_cast<double>(tp_size)));
                            store.parameters()[1]->gradient.fill_(4.0);
                          }),
                5.0, 1e-15);
}

TEST(GradientNorm, TiedTableCountsOnce) {
  auto build = [](Mesh& mesh, ParameterStore& store) {
    store.declare(parameter_of("table", 1, mesh.coordinate().pp == 0));
    store.allocate(at::kDouble, at::kCPU);
    store.flat_gradients().fill_(1.0);
  };
  EXPECT_EQ(norm_over({1, 2, 1}, 2.0, at::kDouble, build), 1.0);
  EXPECT_EQ(norm_over({1, 3, 1}, kInfinity, at::kDouble, build), 1.0);
}

// Against one process holding all values, over layouts and both norms; sizes that are no multiple of any vector or chunk.
TEST(GradientNorm, EqualsTheWholeVector) {
  const int64_t whole = 3 * 65536 + 12345;
  at::Tensor values = at::sin(at::arange(whole, at::kDouble) * 1.7) * 3.0;
  const double two = values.norm().item<double>(), largest = values.abs().max().item<double>();
  for (at::ScalarType type : {at::kFloat, at::kDouble})
    for (MeshLayout layout : {MeshLayout{1, 1, 1}, {1, 1, 3}, {1, 4, 1}, {2, 1, 2}, {1, 3, 2}}) {
      auto build = [&](Mesh& mesh, ParameterStore& store) {
        const int64_t parts = layout.pp_size * layout.tp_size;
        const Span span = split_evenly(whole, parts, mesh.coordinate().pp * layout.tp_size + mesh.coordinate().tp);
        store.declare(parameter_of("a", 17));
        store.declare(parameter_of("skipped", 5, false));
        store.declare(parameter_of("b", span.size - 17));
        store.allocate(type, at::kCPU);
        store.parameters()[0]->gradient.copy_(values.narrow(0, span.begin, 17));
        store.parameters()[1]->gradient.fill_(1000.0);
        store.parameters()[2]->gradient.copy_(values.narrow(0, span.begin + 17, span.size - 17));
      };
      const double tolerance = type == at::kDouble ? 1e-13 : 1e-7;
      EXPECT_NEAR(norm_over(layout, 2.0, type, build) / two, 1.0, tolerance);
      EXPECT_NEAR(norm_over(layout, kInfinity, type, build) / largest, 1.0, tolerance);
    }
}

// fp32 sums would stall at 2^24 ones; large values would overflow when squared in fp32.
TEST(GradientNorm, SumsInDouble) {
  at::Tensor ones = at::ones({(1 << 24) + 4096}, at::kFloat);
  EXPECT_EQ(detail::local_norm_term(ones, 2.0), (1 << 24) + 4096.0);
  EXPECT_NEAR(detail::local_norm_term(at::full({3}, 1e30, at::kFloat), 2.0) / 3e60, 1.0, 1e-6);
}

TEST(GradientNorm, NonFiniteAnywhereIsSeenByAllRanks) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const MeshLayout layout{2, 2, 2};
  for (double norm_type : {2.0, kInfinity})
    for (double bad : {nan, kInfinity, -kInfinity})
      for (bool counts : {true, false})
        // The data axis reduces gradients before the norm, so its ranks hold the same values: here all of data rank d do.
        for (int64_t bad_pp : {0, 1})
          for (int64_t bad_tp : {0, 1}) {
            std::vector<double> norms(8);
            run_thread_ranks(layout, [&](Mesh& mesh) {
              ParameterStore store;
              store.declare(parameter_of("a", 40));
              store.declare(parameter_of("b", 100, counts));
              store.allocate(at::kFloat, at::kCPU);
              store.flat_gradients().fill_(1.0);
              if (mesh.coordinate().pp == bad_pp && mesh.coordinate().tp == bad_tp) store.parameters()[1]->gradient[77] = bad;
              norms[static_cast<size_t>(mesh.rank())] = global_gradient_norm(store, mesh, norm_type);
            });
            for (double norm : norms) EXPECT_FALSE(std::isfinite(norm)) << bad << " " << norm_type;
          }
}

// An overflow on one rank of each axis in turn: all ranks skip the same step, nothing moves, the next step runs.
TEST(GradientNorm, OverflowSkipsTheStepOnAllRanks) {
  const MeshLayout layout{2, 2, 2};
  for (Coordinate bad : {Coordinate{1, 0, 0}, Coordinate{0, 1, 0}, Coordinate{0, 0, 1}}) {
    run_thread_ranks(layout, [&](Mesh& mesh) {
      ParameterStore store;
      store.declare(parameter_of("w", 50));
      store.declare(parameter_of("copy", 50, mesh.coordinate().tp == 0));
      store.allocate(at::kHalf, at::kCPU);
      store.initialize(1);
      OptimizerConfig config;
      config.weight_decay = 0.1;
      auto optimizer = make_optimizer(store, config);
      LossScaleConfig scale_config;
      LossScaler scaler(scale_config, true);
      auto one_step = [&](bool inject) {
        store.flat_gradients().fill_(0.01 * scaler.scale());
        const Coordinate c = mesh.coordinate();
        if (inject && c.dp == bad.dp && c.pp == bad.pp && c.tp == bad.tp) store.parameters()[1]->gradient[3] = kInfinity;
        mesh.data().all_reduce(store.flat_gradients())->wait();
        const double norm = global_gradient_norm(store, mesh);
        if (std::isfinite(norm)) optimizer->step(1e-2, clip_factor(norm / scaler.scale(), 1.0) / scaler.scale());
        scaler.update(!std::isfinite(norm));
      };
      one_step(false);
      at::Tensor before = store.flat_masters().clone(), moment_before = optimizer->state()[0].flat.clone();
      one_step(true);
      EXPECT_TRUE(at::equal(before, store.flat_masters()));
      EXPECT_TRUE(at::equal(moment_before, optimizer->state()[0].flat));
      EXPECT_EQ(optimizer->num_updates(), 1);
      EXPECT_EQ(scaler.scale(), 32768.0);
      one_step(false);
      EXPECT_FALSE(at::equal(before, store.flat_masters()));
      EXPECT_EQ(optimizer->num_updates(), 2);
      EXPECT_EQ(scaler.scale(), 32768.0);
      EXPECT_TRUE(at::isfinite(store.flat_masters()).all().item<bool>());
    });
  }
}

TEST(GradientNorm, ClipFactor) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(1e9, 0.0), 1.0);  // off
  EXPECT_LE(clip_factor(4.0, 1.0) * 4.0, 1.0 + 1e-6);
}

TEST(GradientNorm, OnlyTwoAndInfinity) {
  run_thread_ranks({1, 1, 1}, [](Mesh& mesh) {
    ParameterStore store;
    store.declare(parameter_of("w", 3));
    store.allocate(at::kFloat, at::kCPU);
    EXPECT_THROW(global_gradient_norm(store, mesh, 1.0), Error);
  });
}

}  // namespace
}  // namespace plait
