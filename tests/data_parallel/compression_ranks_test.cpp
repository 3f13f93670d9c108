#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "plait/config/enum_names.h"
#include "plait/data_parallel/reducer.h"
#include "tests/comm/recording_group.h"

namespace plait {
namespace {

const std::vector<std::vector<int64_t>> kShapes = {{61, 40}, {40}, {33, 80}, {7, 3}, {1}, {300, 9}, {5, 8, 30}, {257}};

void declare_model(ParameterStore& store, at::ScalarType type) {
  for (size_t i = 0; i < kShapes.size(); ++i) {
    Parameter p;
    p.name = "p" + std::to_string(i);
    p.global_shape = p.local_shape = kShapes[i];
    p.owner_stages = {0};
    store.declare(p);
  }
  store.allocate(type, at::kCPU);
}

std::vector<GradientCompression> all_algorithms() {
  using G = GradientCompression;
  return {G::kBFloat16, G::kFloat16, G::kFloat8, G::kPowerSGD, G::kTopK, G::kNccl};
}

ReducerOptions options_for(GradientCompression algorithm, int64_t bucket_bytes = 1 << 20, bool overlap = true) {
  ReducerOptions options;
  options.bucket_size_bytes = bucket_bytes;
  options.overlap = overlap;
  options.compression.config.algorithm = algorithm;
  options.compression.config.threshold_bytes = 0;
  options.compression.config.rank = 3;
  options.compression.config.ratio = 0.1;
  options.compression.seed = 7;
  return options;
}

// This rank's gradient of a step: smooth, so that it has a low-rank part, and different everywhere.
at::Tensor own_gradient(const Parameter& p, int64_t rank, int64_t step) {
  at::Tensor i = at::arange(p.numel, at::kDouble);
  const auto phase = static_cast<double>(rank * 31 + step * 7);
  return (at::sin(i * 0.3 + phase) + 0.2 * at::sin(i * i * 0.01 + phase)).to(p.gradient.scalar_type()).view(p.local_shape);
}

void fill(ParameterStore& store, int64_t rank, int64_t step) {
  store.zero_gradients();
  for (const auto& p : store.parameters()) p->gradient.copy_(own_gradient(*p, rank, step));
}

void reduce(ParameterStore& store, GradientReducer& reducer, int64_t rank, int64_t step) {
  store.zero_gradients();
  for (const auto& p : store.parameters()) p->add_use();
  reducer.begin_last_backward();
  for (size_t i = store.parameters().size(); i-- > 0;) {
    Parameter& p = *store.parameters()[i];
    p.gradient.copy_(own_gradient(p, rank, step));
    p.use_done();
  }
  reducer.finish();
}

// The packed numbers of all ranks are one vector: name -> tensor.
at::Tensor sum_over_ranks(ProcessGroup& group, const at::Tensor& tensor) {
  at::Tensor sum = tensor.to(at::kDouble).contiguous().clone();
  group.all_reduce(sum)->wait();
  return sum;
}

bool same_on_all_ranks(ProcessGroup& group, const at::Tensor& tensor) {
  at::Tensor all = at::empty({group.size(), tensor.numel()}, tensor.options());
  group.all_gather(all.view({-1}), tensor.contiguous().view({-1}))->wait();
  for (int64_t r = 1; r < group.size(); ++r)
    if (!at::equal(all[r].view({-1}).nan_to_num(1e30), all[0].view({-1}).nan_to_num(1e30))) return false;
  return true;
}

at::Tensor residual_of(GradientReducer& reducer, const Parameter& p) {
  for (NamedTensor& t : reducer.compression_state())
    if (t.name == p.name + ".residual") return t.tensor;
  return at::zeros_like(p.gradient);
}

// The invariant of error feedback: what came out + what is still held back = what went in. And all ranks have the same bits.
TEST(Compression, NothingIsLostOverTheSteps) {
  for (GradientCompression algorithm : all_algorithms()) {
    if (algorithm == GradientCompression::kNccl) continue;
    for (at::ScalarType type : {at::kFloat, at::kDouble})
      for (int64_t ranks : {2, 3, 8})
        for (int64_t bucket_bytes : {int64_t{1}, int64_t{9000}, int64_t{1} << 20}) {
          if (ranks > 3 && bucket_bytes == 9000) continue;
          run_thread_ranks({ranks, 1, 1}, [&](Mesh& mesh) {
            ParameterStore store;
            declare_model(store, type);
            GradientReducer reducer(store, mesh.data(), options_for(algorithm, bucket_bytes));
            ASSERT_TRUE(reducer.compresses());
            std::vector<at::Tensor> in, out;
            for (const auto& p : store.parameters()) {
              in.push_back(at::zeros_like(p->gradient, at::kDouble));
              out.push_back(at::zeros_like(p->gradient, at::kDouble));
            }
            for (int64_t step = 0; step < 3; ++step) {
              reduce(store, reducer, mesh.rank(), step);
              EXPECT_TRUE(same_on_all_ranks(mesh.data(), store.flat_gradients())) << enum_word(algorithm);
              for (size_t i = 0; i < kShapes.size(); ++i) {
                const Parameter& p = *store.parameters()[i];
                in[i] += sum_over_ranks(mesh.data(), own_gradient(p, mesh.rank(), step));
                out[i] += p.gradient.to(at::kDouble);
              }
            }
            for (size_t i = 0; i < kShapes.size(); ++i) {
              at::Tensor held = sum_over_ranks(mesh.data(), residual_of(reducer, *store.parameters()[i]));
              EXPECT_TRUE(at::allclose(out[i] + held, in[i], 0, type == at::kDouble ? 1e-9 : 3e-4))
                  << enum_word(algorithm) << " p" << i << " ranks " << ranks << " worst "
                  << (out[i] + held - in[i]).abs().max().item<double>();
            }
          });
        }
  }
}

// How near one step's sum is: the 16-bit types round, fp8 more, and a low-rank matrix passes a low-rank exchange whole.
TEST(Compression, ErrorOfOneStep) {
  using G = GradientCompression;
  const std::vector<std::pair<G, double>> bounds = {{G::kBFloat16, 6e-3}, {G::kFloat16, 8e-4}, {G::kFloat8, 0.06}, {G::kNccl, 8e-3}};
  for (const auto& [algorithm, bound] : bounds)
    run_thread_ranks({3, 1, 1}, [algorithm = algorithm, bound = bound](Mesh& mesh) {
      ParameterStore store;
      declare_model(store, at::kFloat);
      GradientReducer reducer(store, mesh.data(), options_for(algorithm));
      reduce(store, reducer, mesh.rank(), 0);
      for (const auto& p : store.parameters()) {
        at::Tensor want = sum_over_ranks(mesh.data(), own_gradient(*p, mesh.rank(), 0));
        EXPECT_LE((p->gradient.to(at::kDouble) - want).norm().item<double>(), bound * want.norm().item<double>())
            << enum_word(algorithm) << " " << p->name;
        if (p->local_shape.size() == 1) {
          EXPECT_TRUE(at::allclose(p->gradient.to(at::kDouble), want, 0, 1e-5)) << "biases go as they are";
        }
      }
      const ReductionCounts& counts = reducer.counts();
      EXPECT_GT(counts.residual_squares, 0);
      EXPECT_LE(counts.residual_squares, bound * bound * counts.value_squares);
      EXPECT_GT(counts.bytes_saved, 0);
    });
}

TEST(Compression, PowerSgdIsExactForLowRank) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    ParameterStore store;
    declare_model(store, at::kFloat);
    GradientReducer reducer(store, mesh.data(), options_for(GradientCompression::kPowerSGD));
    Parameter& p = *store.parameters()[0];
    at::Tensor left = at::sin(at::arange(61 * 2, at::kFloat)).view({61, 2}), right = at::cos(at::arange(80, at::kFloat)).view({2, 40});
    at::Tensor sum = at::mm(left, right) * 2;
    p.gradient.copy_(at::mm(left, right) * (mesh.rank() == 0 ? 0.5 : 1.5));
    reducer.finish();
    EXPECT_TRUE(at::allclose(p.gradient, sum, 1e-4, 1e-4)) << (p.gradient - sum).abs().max().item<float>();
  });
}

// Bits do not depend on overlap, and with the threshold above all buckets nothing differs from no compression at all.
TEST(Compression, OverlapChangesNoBit) {
  std::vector<GradientCompression> algorithms = all_algorithms();
  algorithms.push_back(GradientCompression::kNone);
  for (GradientCompression algorithm : algorithms)
    for (int64_t ranks : {2, 3})
      for (int64_t bucket_bytes : {int64_t{9000}, int64_t{1} << 20}) {
        at::Tensor first;
        std::mutex mutex;
        for (bool overlap : {false, true})
          run_thread_ranks({ranks, 1, 1}, [&](Mesh& mesh) {
            ParameterStore store;
            declare_model(store, at::kFloat);
            GradientReducer reducer(store, mesh.data(), options_for(algorithm, bucket_bytes, overlap));
            for (int64_t step = 0; step < 3; ++step) reduce(store, reducer, mesh.rank(), step);
            std::lock_guard lock(mutex);
            if (!first.defined()) first = store.flat_gradients().clone();
            EXPECT_TRUE(at::equal(first, store.flat_gradients())) << enum_word(algorithm) << " overlap " << overlap;
          });
      }
}

TEST(Compression, SmallBucketsGoAsTheyAre) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    ParameterStore plain, store;
    declare_model(plain, at::kFloat);
    declare_model(store, at::kFloat);
    GradientReducer none(plain, mesh.data(), options_for(GradientCompression::kNone, 9000));
    ReducerOptions options = options_for(GradientCompression::kFloat8, 9000);
    options.compression.config.threshold_bytes = 9700;
    GradientReducer reducer(store, mesh.data(), options);
    reduce(plain, none, mesh.rank(), 0);
    reduce(store, reducer, mesh.rank(), 0);
    int64_t compressed = 0;
    for (size_t b = 0; b < reducer.buckets().size(); ++b) {
      const auto& bucket = reducer.buckets()[b];
      at::Tensor a = plain.flat_gradients().narrow(0, bucket.begin, bucket.size);
      at::Tensor c = store.flat_gradients().narrow(0, bucket.begin, bucket.size);
      EXPECT_EQ(at::equal(a, c), bucket.size * 4 < 9700) << b;
      EXPECT_EQ(reducer.is_compressed(b), bucket.size * 4 >= 9700) << b;
      compressed += reducer.is_compressed(b) ? 1 : 0;
    }
    EXPECT_GE(compressed, 1);
    EXPECT_LT(compressed, static_cast<int64_t>(reducer.buckets().size()));
    options.compression.config.threshold_bytes = 1 << 20;
    plain.zero_gradients();
    GradientReducer above(plain, mesh.data(), options);
    EXPECT_FALSE(above.compresses());
    EXPECT_TRUE(above.compression_state().empty());
  });
}

// What is counted is what left: against the types' own sizes.
TEST(Compression, BytesOnTheWire) {
  using G = GradientCompression;
  for (int64_t ranks : {2, 4})
    run_thread_ranks({ranks, 1, 1}, [&](Mesh& mesh) {
      double elements = 0;
      for (const auto& shape : kShapes)
        if (shape.size() > 1) {
          double n = 1;
          for (int64_t d : shape) n *= static_cast<double>(d);
          elements += n;
        }
      for (auto [algorithm, bytes] :
           {std::pair{G::kBFloat16, 2.0}, {G::kFloat16, 2.0 + 1.0 / 256}, {G::kFloat8, 1.0 + 1.0 / 256}, {G::kNccl, 2.0}}) {
        ParameterStore store;
        declare_model(store, at::kFloat);
        GradientReducer reducer(store, mesh.data(), options_for(algorithm));
        reduce(store, reducer, mesh.rank(), 0);
        const double share = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
        const double plain = 4.0 * (40 + 1 + 257) * share;
        EXPECT_NEAR(reducer.counts().bytes_sent, elements * bytes * share + plain, elements * bytes * share * 0.1) << enum_word(algorithm);
      }
    });
}

// Gradients that are not finite on one rank are not finite on all, and a step that is taken back leaves the error feedback as it was.
TEST(Compression, NonFiniteGradientsReachAllAndPoisonNothing) {
  for (GradientCompression algorithm : all_algorithms())
    for (double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
      for (int64_t guilty : {0, 2})
        run_thread_ranks({3, 1, 1}, [&](Mesh& mesh) {
          ParameterStore store, twin;
          declare_model(store, at::kFloat);
          declare_model(twin, at::kFloat);
          ReducerOptions options = options_for(algorithm, 9000);
          options.compression.steps_may_skip = true;
          GradientReducer reducer(store, mesh.data(), options), unhurt(twin, mesh.data(), options);
          reducer.set_gradient_scale(1024);
          reduce(store, reducer, mesh.rank(), 0);
          reducer.settle(true);
          std::vector<at::Tensor> before;
          for (auto& t : reducer.compression_state()) before.push_back(t.tensor.clone());
          fill(store, mesh.rank(), 1);
          if (mesh.rank() == guilty) store.parameters()[2]->gradient[5][3] = bad;
          reducer.finish();
          EXPECT_FALSE(store.flat_gradients().isfinite().all().item<bool>()) << enum_word(algorithm) << " rank " << mesh.rank();
          EXPECT_TRUE(same_on_all_ranks(mesh.data(), store.flat_gradients())) << enum_word(algorithm);
          reducer.settle(false);
          auto after = reducer.compression_state();
          ASSERT_EQ(after.size(), before.size());
          for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(after[i].tensor, before[i])) << after[i].name;
          // The next step is as if the bad one had not been.
          unhurt.set_gradient_scale(1024);
          reduce(twin, unhurt, mesh.rank(), 0);
          reduce(twin, unhurt, mesh.rank(), 2);
          reduce(store, reducer, mesh.rank(), 2);
          EXPECT_TRUE(at::equal(store.flat_gradients(), twin.flat_gradients())) << enum_word(algorithm);
          EXPECT_TRUE(store.flat_gradients().isfinite().all().item<bool>());
        });
}

// Residuals are kept without the loss scale: a scale that changes by a power of two changes no bit of the unscaled sums.
TEST(Compression, ResidualsFollowTheLossScale) {
  for (GradientCompression algorithm : {GradientCompression::kFloat8, GradientCompression::kFloat16, GradientCompression::kTopK})
    run_thread_ranks({2, 1, 1}, [&](Mesh& mesh) {
      ParameterStore plain, scaled;
      declare_model(plain, at::kFloat);
      declare_model(scaled, at::kFloat);
      ReducerOptions options = options_for(algorithm);
      options.compression.steps_may_skip = true;
      GradientReducer a(plain, mesh.data(), options), b(scaled, mesh.data(), options);
      double scale = 4096;
      for (int64_t step = 0; step < 4; ++step, scale *= step == 2 ? 2 : 0.25) {
        fill(plain, mesh.rank(), step);
        fill(scaled, mesh.rank(), step);
        scaled.flat_gradients().mul_(scale);
        b.set_gradient_scale(scale);
        a.finish();
        b.finish();
        a.settle(true);
        b.settle(true);
        EXPECT_TRUE(at::equal(plain.flat_gradients(), scaled.flat_gradients() / scale)) << enum_word(algorithm) << " step " << step;
      }
    });
}

// The state that a checkpoint would keep: loaded into a new reducer it goes on with the same bits.
TEST(Compression, StateGoesOn) {
  for (GradientCompression algorithm : all_algorithms())
    run_thread_ranks({2, 1, 1}, [&](Mesh& mesh) {
      ParameterStore store, other;
      declare_model(store, at::kFloat);
      declare_model(other, at::kFloat);
      GradientReducer first(store, mesh.data(), options_for(algorithm));
      for (int64_t step = 0; step < 3; ++step) reduce(store, first, mesh.rank(), step);
      ReducerOptions options = options_for(algorithm);
      options.compression.seed = 99;  // everything is in the state
      GradientReducer second(other, mesh.data(), options);
      auto from = first.compression_state(), to = second.compression_state();
      ASSERT_EQ(from.size(), to.size());
      EXPECT_EQ(from.empty(), algorithm == GradientCompression::kNccl);
      for (size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(from[i].name, to[i].name);
        to[i].tensor.copy_(from[i].tensor);
      }
      reduce(store, first, mesh.rank(), 3);
      reduce(other, second, mesh.rank(), 3);
      EXPECT_TRUE(at::equal(store.flat_gradients(), other.flat_gradients())) << enum_word(algorithm);
    });
}

// Replicated over the tensor ranks: their copies must stay equal, so they are not compressed there.
TEST(Compression, ReplicatedParametersGoAsTheyAreWithTensorRanks) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    ParameterStore store, exact;
    declare_model(store, at::kFloat);
    declare_model(exact, at::kFloat);
    for (size_t i : {0, 5}) store.parameters()[i]->shard_axis = 0;
    ReducerOptions options = options_for(GradientCompression::kFloat8);
    options.compression.tensor_size = 2;
    GradientReducer reducer(store, mesh.data(), options);
    GradientReducer none(exact, mesh.data(), options_for(GradientCompression::kNone));
    reduce(store, reducer, mesh.rank(), 0);
    reduce(exact, none, mesh.rank(), 0);
    for (size_t i = 0; i < kShapes.size(); ++i)
      EXPECT_EQ(at::equal(store.parameters()[i]->gradient, exact.parameters()[i]->gradient), i != 0 && i != 5) << i;
  });
}

// Gradient descent on a quadratic: with error feedback every algorithm reaches the optimum that the exact sum reaches; the ranks' own optima
// differ, so dropping what is small for good would not.
TEST(Compression, DescentConverges) {
  using G = GradientCompression;
  for (auto [algorithm, bound] :
       {std::pair{G::kBFloat16, 1e-3}, {G::kFloat16, 1e-3}, {G::kFloat8, 1e-3}, {G::kPowerSGD, 2e-2}, {G::kTopK, 5e-2}, {G::kNccl, 1e-3}})
    run_thread_ranks({3, 1, 1}, [algorithm = algorithm, bound = bound](Mesh& mesh) {
      ParameterStore store;
      declare_model(store, at::kFloat);
      GradientReducer reducer(store, mesh.data(), options_for(algorithm));
      std::vector<at::Tensor> optimum;
      double distance = 0, size = 0;
      for (const auto& p : store.parameters())
        optimum.push_back((own_gradient(*p, 0, 0) + own_gradient(*p, 1, 0) + own_gradient(*p, 2, 0)) / 3);
      for (int64_t step = 0; step < 300; ++step) {
        store.zero_gradients();
        for (const auto& p : store.parameters()) p->gradient.copy_(p->master - own_gradient(*p, mesh.rank(), 0));
        reducer.finish();
        for (const auto& p : store.parameters()) p->master.sub_(p->gradient, 0.03);
      }
      for (size_t i = 0; i < optimum.size(); ++i) {
        at::Tensor off = store.parameters()[i]->master - optimum[i];
        distance += (off * off).sum().item<double>();
        size += (optimum[i] * optimum[i]).sum().item<double>();
      }
      EXPECT_LE(std::sqrt(distance / size), bound) << enum_word(algorithm);
    });
}

// A message over a network waits for the word that it is expected, and that word stands behind what its rank sends.
TEST(Compression, ReceivesArePostedBeforeAnythingIsSent) {
  run_thread_ranks({3, 1, 1}, [](Mesh& mesh) {
    auto log = std::make_shared<testing::OperationLog>();
    testing::RecordingGroup group(mesh.data(), log);
    ParameterStore store;
    declare_model(store, at::kFloat);
    GradientReducer reducer(store, group, options_for(GradientCompression::kFloat8, 8 << 10));
    for (int64_t step = 0; step < 2; ++step) {
      log->clear();
      fill(store, mesh.rank(), step);
      reducer.begin_last_backward();
      int64_t compressed = 0;
      for (size_t b = 0; b < reducer.buckets().size(); ++b) compressed += reducer.is_compressed(b);
      EXPECT_GT(compressed, 1);
      const int64_t expected = testing::count_of(*log, "start recv");  // shards of small buckets may be empty
      EXPECT_GE(expected, 2 * compressed);
      EXPECT_EQ(testing::count_of(*log, "start send"), 0);
      reducer.finish();
      EXPECT_EQ(testing::count_of(*log, "start recv"), expected);
      EXPECT_GE(testing::count_of(*log, "start send"), 2 * compressed);
    }
  });
}

}  // namespace
}  // namespace plait
