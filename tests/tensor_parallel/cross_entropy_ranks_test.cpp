// The split-vocabulary loss against a dense fp64 reference, over sizes, smoothing, ignored targets, logit scales and types.
#include "plait/tensor_parallel/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "plait/base/random.h"
#include "plait/base/text.h"
#include "plait/comm/launch.h"
#include "plait/plan/partition.h"

namespace plait {
namespace {

constexpr int64_t kRows = 11;

enum class Ignored { kNone, kSome, kAll };

struct LossCase {
  int64_t vocab_size;
  double smoothing;
  Ignored ignored;
  double scale;
  at::ScalarType type;
};

// Values in [-1, 1) that any number of threads makes alike.
at::Tensor pseudo_random(at::IntArrayRef sizes, uint64_t salt) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  double* p = x.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) p[i] = static_cast<double>(mix64(salt + static_cast<uint64_t>(i)) >> 11) * 0x1p-52 - 1.0;
  return x;
}

at::Tensor make_targets(const LossCase& c) {
  at::Tensor targets = at::empty({kRows}, at::kLong);
  for (int64_t i = 0; i < kRows; ++i) {
    bool skip = c.ignored == Ignored::kAll || (c.ignored == Ignored::kSome && i % 3 == 1);
    // First and last row of the vocabulary are among them.
    int64_t id = i == 0   ? 0
                 : i == 2 ? c.vocab_size - 1
                          : static_cast<int64_t>(mix64(static_cast<uint64_t>(77 + i)) % static_cast<uint64_t>(c.vocab_size));
    targets[i].fill_(skip ? -100 : id);
  }
  return targets;
}

struct LossAndGradient {
  at::Tensor loss, gradient;  // [n], [n, V]
};

// Written out in fp64, with a weight a row so that rows cannot be confused.
LossAndGradient dense(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& row_weights, double e) {
  at::Tensor log_p = at::log_softmax(logits, 1);
  at::Tensor valid = targets.ne(-100).to(at::kDouble), own = targets.clamp_min(0).unsqueeze(1);
  at::Tensor loss = (log_p.gather(1, own).squeeze(1).neg() * (1 - e) - log_p.mean(1) * e) * valid;
  at::Tensor wanted = at::full_like(logits, e / static_cast<double>(logits.size(1)));
  wanted.scatter_add_(1, own, at::full({kRows, 1}, 1 - e, at::kDouble));
  return {loss, (log_p.exp() - wanted) * (valid * row_weights).unsqueeze(1)};
}

double epsilon(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 2.2e-16;
    case at::kFloat: return 1.2e-7;
    case at::kHalf: return 9.8e-4;
    default: return 7.8e-3;
  }
}

void check(Mesh& mesh, const LossCase& c, std::vector<at::Tensor>& losses) {
  SCOPED_TRACE(cat("tp ", mesh.tensor().size(), " V ", c.vocab_size, " smoothing ", c.smoothing, " ignored ", static_cast<int>(c.ignored),
                   " scale ", c.scale, " type ", at::toString(c.type)));
  TensorParallelContext context{&mesh.tensor(), false, nullptr};
  // What the type can hold is the input of both.
  at::Tensor logits = (pseudo_random({kRows, c.vocab_size}, 5) * c.scale).to(c.type), targets = make_targets(c);
  at::Tensor row_weights = pseudo_random({kRows}, 900).abs() + 0.5;
  LossAndGradient wanted = dense(logits.to(at::kDouble), targets, row_weights, c.smoothing);
  Span own = split_evenly(c.vocab_size, context.size(), context.rank());
  at::Tensor x = logits.narrow(1, own.begin, own.size).contiguous();
  x.requires_grad_(true);
  at::Tensor loss = vocab_parallel_cross_entropy(x, targets, c.vocab_size, c.smoothing, context);
  EXPECT_EQ(loss.scalar_type(), c.type == at::kDouble ? at::kDouble : at::kFloat);
  losses[static_cast<size_t>(mesh.rank())] = loss.detach();
  loss.backward(row_weights.to(loss.scalar_type()));
  at::Tensor gradient = x.grad();
  ASSERT_EQ(gradient.scalar_type(), c.type);
  {
    at::NoGradGuard no_grad;
    at::Tensor without_graph = vocab_parallel_cross_entropy(x.detach(), targets, c.vocab_size, c.smoothing, context);
    EXPECT_TRUE(without_graph.equal(loss.detach()));
  }
  // Overwriting the logits gives the same bits; with a graph and without.
  at::Tensor leaf = logits.narrow(1, own.begin, own.size).contiguous();
  leaf.requires_grad_(true);
  at::Tensor in_place = vocab_parallel_cross_entropy(leaf * 1.0, targets, c.vocab_size, c.smoothing, context, LogitsUse::kConsumed);
  EXPECT_TRUE(in_place.detach().equal(loss.detach()));
  in_place.backward(row_weights.to(loss.scalar_type()));
  EXPECT_TRUE(leaf.grad().equal(gradient));
  double sums = c.type == at::kDouble ? 1e-13 : 2e-6;  // of the sums, whatever the type of the logits
  EXPECT_LE((loss.detach().to(at::kDouble) - wanted.loss).abs().max().item<double>(), sums * std::max(1.0, c.scale));
  at::Tensor error = (gradient.to(at::kDouble) - wanted.gradient.narrow(1, own.begin, own.size)).abs();
  if (own.size > 0) {
    EXPECT_LE(error.max().item<double>(), 2 * epsilon(c.type) + (c.type == at::kDouble ? 1e-13 : sums * std::max(1.0, c.scale * 0.1)));
  }
  at::Tensor skipped = targets.eq(-100).nonzero().flatten();
  EXPECT_TRUE(loss.detach().index_select(0, skipped).eq(0).all().item<bool>());
  EXPECT_TRUE(gradient.index_select(0, skipped).eq(0).all().item<bool>());
  // The gradient of a row sums to 0 over the whole vocabulary.
  at::Tensor total = gradient.to(at::kDouble).sum(1);
  mesh.tensor().all_reduce(total)->wait();
  EXPECT_LE(total.abs().max().item<double>(), 64 * epsilon(c.type));
  EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
}

void check_table(int64_t tp, at::ScalarType type) {
  std::vector<LossCase> cases;
  for (int64_t vocab_size : {61, 64})
    for (double smoothing : {0.0, 0.1})
      for (Ignored ignored : {Ignored::kNone, Ignored::kSome, Ignored::kAll})
        for (double scale : {1.0, 1000.0}) cases.push_back({vocab_size, smoothing, ignored, scale, type});
  std::vector<std::vector<at::Tensor>> losses(cases.size(), std::vector<at::Tensor>(static_cast<size_t>(tp)));
  run_thread_ranks({.tp_size = tp}, [&](Mesh& mesh) {
    for (size_t i = 0; i < cases.size(); ++i) check(mesh, cases[i], losses[i]);
  });
  for (const auto& of_ranks : losses)
    for (const auto& loss : of_ranks) EXPECT_TRUE(loss.equal(of_ranks[0])) << "ranks disagree";
}

class CrossEntropy : public ::testing::TestWithParam<std::tuple<int64_t, at::ScalarType>> {};

TEST_P(CrossEntropy, EqualsDense) { check_table(std::get<0>(GetParam()), std::get<1>(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropy,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8),
                                            ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf, at::kDouble)));

// More ranks than words: a rank without a column takes part and changes nothing.
TEST(CrossEntropyEdge, RankWithoutColumns) {
  std::vector<at::Tensor> losses(4);
  run_thread_ranks({.tp_size = 4}, [&](Mesh& mesh) { check(mesh, {3, 0.1, Ignored::kSome, 1.0, at::kDouble}, losses); });
  for (const auto& loss : losses) EXPECT_TRUE(loss.equal(losses[0]));
}

// Rows that are no rows: an empty micro-batch.
TEST(CrossEntropyEdge, NoRows) {
  run_thread_ranks({.tp_size = 2}, [&](Mesh& mesh) {
    TensorParallelContext context{&mesh.tensor(), false, nullptr};
    Span own = split_evenly(61, 2, mesh.rank());
    at::Tensor loss = vocab_parallel_cross_entropy(at::empty({0, own.size}, at::kFloat), at::empty({0}, at::kLong), 61, 0.0, context);
    EXPECT_EQ(loss.numel(), 0);
  });
}

}  // namespace
}  // namespace plait
