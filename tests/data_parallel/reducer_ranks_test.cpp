#include "plait/data_parallel/reducer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/comm/launch.h"

namespace plait {
namespace {

const std::vector<int64_t> kSizes = {61 * 8, 8, 13 * 8, 13, 1, 40, 8, 100};

void declare_model(ParameterStore& store, at::ScalarType type) {
  for (size_t i = 0; i < kSizes.size(); ++i) {
    Parameter p;
    p.name = "p" + std::to_string(i);
    p.global_shape = p.local_shape = {kSizes[i]};
    p.owner_stages = {0};
    store.declare(p);
  }
  store.allocate(type, at::kCPU);
}

at::Tensor share(const Parameter& p, int64_t rank, int64_t micro_batch, at::ScalarType type) {
  at::Tensor i = at::arange(p.numel, at::kDouble);
  return at::sin(i * 0.3 + static_cast<double>(rank * 31 + micro_batch * 7) + static_cast<double>(p.numel)).to(type);
}

// Which parameters a micro-batch uses on a rank: p3 never, p5 only on rank 0, p6 only in micro-batch 0, the others always.
bool used(size_t parameter, int64_t rank, int64_t micro_batch) {
  return parameter != 3 && (parameter != 5 || rank == 0) && (parameter != 6 || micro_batch == 0);
}

// One step as an executor runs it: forwards announce uses, backwards add gradients from the last parameter to the first.
void run_step(ParameterStore& store, GradientReducer& reducer, int64_t rank, int64_t num_micro_batches, at::ScalarType type,
              bool shuffled) {
  store.zero_gradients();
  for (int64_t m = 0; m < num_micro_batches; ++m) {
    for (size_t i = 0; i < kSizes.size(); ++i)
      if (used(i, rank, m)) store.parameters()[i]->add_use();
    if (m == num_micro_batches - 1) reducer.begin_last_backward();
    for (size_t step = 0; step < kSizes.size(); ++step) {
      // Another order on each rank: timing must not change the order of the messages.
      const size_t i = shuffled ? (step * 3 + static_cast<size_t>(rank)) % kSizes.size() : kSizes.size() - 1 - step;
      if (!used(i, rank, m)) continue;
      Parameter& p = *store.parameters()[i];
      p.gradient.add_(share(p, rank, m, type));
      p.use_done();
    }
  }
  reducer.finish();
}

at::Tensor reference(const Parameter& p, size_t index, int64_t num_ranks, int64_t num_micro_batches, at::ScalarType type) {
  at::Tensor sum = at::zeros({p.numel}, at::kDouble);
  for (int64_t r = 0; r < num_ranks; ++r)
    for (int64_t m = 0; m < num_micro_batches; ++m)
      if (used(index, r, m)) sum += share(p, r, m, type).to(at::kDouble);
  return sum;
}

// Bucket sizes in elements x accumulation x overlap x group size: the sum is right, bit-equal on all ranks and with overlap on and off.
TEST(GradientReducer, SumsWhateverBucketAccumulationAndOverlap) {
  for (at::ScalarType type : {at::kFloat, at::kDouble})
    for (int64_t ranks : {1, 2, 3, 4})
      for (int64_t bucket_elements : {1, 7, 64, 1000000})
        for (int64_t micro_batches : {1, 2, 3, 4}) {
          at::Tensor first;
          for (bool overlap : {false, true})
            for (bool shuffled : {false, true}) {
              std::vector<at::Tensor> results(static_cast<size_t>(ranks));
              run_thread_ranks({ranks, 1, 1}, [&](Mesh& mesh) {
                ParameterStore store;
                declare_model(store, type);
                ReducerOptions options;
                options.bucket_size_bytes = bucket_elements * static_cast<int64_t>(c10::elementSize(type));
                options.overlap = overlap;
                GradientReducer reducer(store, mesh.data(), options);
                for (int step = 0; step < 2; ++step) run_step(store, reducer, mesh.rank(), micro_batches, type, shuffled);
                for (size_t i = 0; i < kSizes.size(); ++i) {
                  const Parameter& p = *store.parameters()[i];
                  at::Tensor want = reference(p, i, ranks, micro_batches, type);
                  EXPECT_TRUE(at::allclose(p.gradient.to(at::kDouble), want, 0, type == at::kDouble ? 1e-13 : 1e-5))
                      << p.name << " ranks " << ranks << " bucket " << bucket_elements << " micro-batches " << micro_batches;
                }
                results[static_cast<size_t>(mesh.rank())] = store.flat_gradients().clone();
              });
              if (!first.defined()) first = results[0];
              for (const at::Tensor& result : results)
                EXPECT_TRUE(at::equal(result, first)) << "overlap " << overlap << " shuffled " << shuffled;
            }
        }
}

TEST(GradientReducer, BucketsCoverEveryParameterOnceInOrder) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    for (int64_t bytes : {int64_t{1}, int64_t{28}, int64_t{256}, int64_t{1000}, int64_t{4000000}}) {
      ParameterStore store;
      declare_model(store, at::kFloat);
      GradientReducer reducer(store, mesh.data(), {bytes, true});
      int64_t parameters = 0, end = 0;
      for (const auto& bucket : reducer.buckets()) {
        EXPECT_GE(bucket.begin, end);
        EXPECT_TRUE(bucket.num_parameters == 1 || bucket.size * 4 <= bytes);
        parameters += bucket.num_parameters;
        end = bucket.begin + bucket.size;
      }
      EXPECT_EQ(parameters, static_cast<int64_t>(kSizes.size()));
      EXPECT_EQ(end, store.parameters().back()->offset + store.parameters().back()->numel);
      if (bytes == 1) {
        EXPECT_EQ(reducer.buckets().size(), kSizes.size());
      } else if (bytes == 4000000) {
        EXPECT_EQ(reducer.buckets().size(), 1u);
      }
    }
    ParameterStore store;
    declare_model(store, at::kFloat);
    EXPECT_THROW(GradientReducer(store, mesh.data(), {0, true}), Error);
  });
}

// Nothing leaves before begin_last_backward(), and with overlap the buckets whose parameters are done leave during it.
TEST(GradientReducer, SendsEarlyOnlyInTheLastBackward) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    ParameterStore store;
    declare_model(store, at::kFloat);
    GradientReducer reducer(store, mesh.data(), {1, true});
    for (const auto& p : store.parameters()) p->add_use();
    for (const auto& p : store.parameters()) {
      p->gradient.fill_(1.0);
      p->use_done();
    }
    EXPECT_EQ(reducer.num_sent_early(), 0);
    for (const auto& p : store.parameters()) p->add_use();
    reducer.begin_last_backward();
    // The last but one first: its bucket must wait for the one behind it.
    const auto& parameters = store.parameters();
    parameters[kSizes.size() - 2]->use_done();
    EXPECT_EQ(reducer.num_sent_early(), 0);
    parameters[kSizes.size() - 1]->use_done();
    EXPECT_EQ(reducer.num_sent_early(), 2);
    for (size_t i = kSizes.size() - 2; i-- > 0;) parameters[i]->use_done();
    EXPECT_EQ(reducer.num_sent_early(), static_cast<int64_t>(kSizes.size()));
    // A gradient that comes when its bucket has left is a bug that must not pass.
    parameters[2]->add_use();
    EXPECT_THROW(parameters[2]->use_done(), Error);
    reducer.finish();
    for (const auto& p : store.parameters()) EXPECT_TRUE(p->gradient.eq(2.0).all().item<bool>()) << p->name;
  });
}

// A parameter used twice in one graph (a tied table) is done only after its second use.
TEST(GradientReducer, WaitsForAllUses) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    ParameterStore store;
    declare_model(store, at::kFloat);
    GradientReducer reducer(store, mesh.data(), {1 << 20, true});
    for (const auto& p : store.parameters()) p->add_use();
    store.parameters()[0]->add_use();
    reducer.begin_last_backward();
    store.parameters()[0]->gradient.add_(1.0);
    store.parameters()[0]->use_done();
    for (size_t i = 1; i < kSizes.size(); ++i) store.parameters()[i]->use_done();
    EXPECT_EQ(reducer.num_sent_early(), 0);
    store.parameters()[0]->gradient.add_(1.0);
    store.parameters()[0]->use_done();
    EXPECT_EQ(reducer.num_sent_early(), 1);
    reducer.finish();
    EXPECT_TRUE(store.parameters()[0]->gradient.eq(4.0).all().item<bool>());
  });
}

// 16-bit compute types: gradients are accumulated and reduced in fp32.
TEST(GradientReducer, LowPrecisionReducesInFp32) {
  run_thread_ranks({4, 1, 1}, [](Mesh& mesh) {
    ParameterStore store;
    declare_model(store, at::kBFloat16);
    GradientReducer reducer(store, mesh.data(), {});
    ASSERT_EQ(store.flat_gradients().scalar_type(), at::kFloat);
    store.flat_gradients().fill_(mesh.rank() == 0 ? 1.0 : 0x1.0p-9);
    for (int i = 0; i < 100; ++i) store.parameters()[1]->gradient.add_(0x1.0p-9);
    reducer.finish();
    EXPECT_TRUE(store.parameters()[0]->gradient.eq(1.0 + 3 * 0x1.0p-9).all().item<bool>());
    EXPECT_TRUE(store.parameters()[1]->gradient.eq(1.0 + 403 * 0x1.0p-9).all().item<bool>());
  });
}

}  // namespace
}  // namespace plait
