// Collectives with a backward against a dense reference in one thread: same outputs, same gradients, sizes 1 to 4.
#include <gtest/gtest.h>

#include "plait/base/error.h"
#include "plait/comm/autograd.h"
#include "plait/comm/launch.h"
#include "plait/plan/partition.h"
#include "tests/comm/collective_cases.h"

namespace plait {
namespace {

using testing::require;
using testing::require_equal;

constexpr int64_t kRows = 3, kColumns = 5;

at::Tensor values(int64_t rank, at::IntArrayRef shape, int64_t salt) { return testing::rank_values(rank, shape, at::kDouble, salt); }

at::Tensor leaf(const at::Tensor& x) { return x.clone().requires_grad_(true); }

void over_tensor_sizes(const std::function<void(Mesh&, int64_t, int64_t)>& body) {
  for (int64_t n : {1, 2, 3, 4}) {
    run_thread_ranks({1, 1, n}, [&](Mesh& mesh) {
      body(mesh, mesh.rank(), n);
      require(mesh.tensor().size() == n, "size");
    });
  }
}

at::Tensor sum_over_ranks(int64_t n, const std::function<at::Tensor(int64_t)>& f) {
  at::Tensor sum = f(0);
  for (int64_t r = 1; r < n; ++r) sum = sum + f(r);
  return sum;
}

// loss_r = sum(w_r * x): d loss / d x = sum of w_r.
TEST(CollectiveGradients, CopyToTensorRanks) {
  over_tensor_sizes([](Mesh& mesh, int64_t rank, int64_t n) {
    at::Tensor x = leaf(values(0, {kRows, kColumns}, 1));
    at::Tensor y = copy_to_tensor_ranks(x, mesh.tensor());
    require_equal(y.detach(), x.detach(), "copy forward");
    (y * values(rank, {kRows, kColumns}, 2)).sum().backward();
    require_equal(x.grad(), sum_over_ranks(n, [](int64_t r) { return values(r, {kRows, kColumns}, 2); }), "copy backward");
  });
}

TEST(CollectiveGradients, ReduceFromTensorRanks) {
  over_tensor_sizes([](Mesh& mesh, int64_t rank, int64_t n) {
    at::Tensor x = leaf(values(rank, {kRows, kColumns}, 1)), before = x.detach().clone();
    at::Tensor y = reduce_from_tensor_ranks(x, mesh.tensor());
    require_equal(y.detach(), sum_over_ranks(n, [](int64_t r) { return values(r, {kRows, kColumns}, 1); }), "reduce forward");
    require_equal(x.detach(), before, "the argument is left alone");
    (y * values(0, {kRows, kColumns}, 2)).sum().backward();
    require_equal(x.grad(), values(0, {kRows, kColumns}, 2), "reduce backward");
  });
}

TEST(CollectiveGradients, GatherRows) {
  over_tensor_sizes([](Mesh& mesh, int64_t rank, int64_t n) {
    std::vector<at::Tensor> pieces;
    for (int64_t r = 0; r < n; ++r) pieces.push_back(values(r, {kRows, kColumns}, 1));
    for (bool replicated_use : {false, true}) {
      at::Tensor x = leaf(values(rank, {kRows, kColumns}, 1));
      at::Tensor y = gather_rows(x, mesh.tensor(), replicated_use);
      require_equal(y.detach(), at::cat(pieces, 0), "gather forward");
      auto weight = [&](int64_t r) { return values(replicated_use ? 0 : r, {kRows * n, kColumns}, 2); };
      (y * weight(rank)).sum().backward();
      at::Tensor whole = replicated_use ? weight(0) : sum_over_ranks(n, weight);
      require_equal(x.grad(), whole.narrow(0, rank * kRows, kRows), "gather backward");
    }
  });
}

TEST(CollectiveGradients, ReduceScatterRows) {
  over_tensor_sizes([](Mesh& mesh, int64_t rank, int64_t n) {
    at::Tensor x = leaf(values(rank, {kRows * n, kColumns}, 1));
    at::Tensor y = reduce_scatter_rows(x, mesh.tensor());
    at::Tensor sum = sum_over_ranks(n, [&](int64_t r) { return values(r, {kRows * n, kColumns}, 1); });
    require_equal(y.detach(), sum.narrow(0, rank * kRows, kRows), "reduce-scatter forward");
    (y * values(rank, {kRows, kColumns}, 2)).sum().backward();
    std::vector<at::Tensor> weights;
    for (int64_t r = 0; r < n; ++r) weights.push_back(values(r, {kRows, kColumns}, 2));
    require_equal(x.grad(), at::cat(weights, 0), "reduce-scatter backward");
  });
}

TEST(CollectiveGradients, ScatterRows) {
  over_tensor_sizes([](Mesh& mesh, int64_t rank, int64_t n) {
    at::Tensor x = leaf(values(0, {kRows * n, kColumns}, 1));
    at::Tensor y = scatter_rows(x, mesh.tensor());
    require_equal(y.detach(), x.detach().narrow(0, rank * kRows, kRows), "scatter forward");
    (y * values(rank, {kRows, kColumns}, 2)).sum().backward();
    std::vector<at::Tensor> weights;
    for (int64_t r = 0; r < n; ++r) weights.push_back(values(r, {kRows, kColumns}, 2));
    require_equal(x.grad(), at::cat(weights, 0), "scatter backward");
  });
}

TEST(CollectiveGradients, GatherColumnsOfUnequalWidth) {
  over_tensor_sizes([](Mesh& mesh, int64_t rank, int64_t n) {
    for (int64_t total : {n, n + 1, 4 * n + n / 2, int64_t{2}}) {  // 2 columns over 3 or 4 ranks: some have none
      at::Tensor whole = values(0, {2, kRows, total}, 1);
      Span own = split_evenly(total, n, rank);
      at::Tensor x = leaf(whole.narrow(-1, own.begin, own.size));
      at::Tensor y = gather_columns(x, total, mesh.tensor());
      require_equal(y.detach(), whole, "gather columns forward");
      at::Tensor weight = values(0, {2, kRows, total}, 2);
      (y * weight).sum().backward();
      require_equal(x.grad(), weight.narrow(-1, own.begin, own.size), "gather columns backward");
    }
  });
}

// Gradients that arrive expanded (stride 0) or shared must not be written in place.
TEST(CollectiveGradients, ExpandedAndSharedGradients) {
  over_tensor_sizes([](Mesh& mesh, int64_t, int64_t n) {
    at::Tensor x = leaf(values(0, {kRows, kColumns}, 1));
    at::Tensor y = copy_to_tensor_ranks(x, mesh.tensor());
    (y + x).sum().backward();
    require_equal(x.grad(), at::full_like(x, static_cast<double>(n + 1)), "expanded gradient");
    at::Tensor z = leaf(values(0, {kRows, kColumns}, 1)), weight = values(0, {kRows, kColumns}, 2);
    ((copy_to_tensor_ranks(z, mesh.tensor()) + z) * weight).sum().backward();
    require_equal(z.grad(), weight * static_cast<double>(n + 1), "gradient shared by an all-reduced and a plain branch");
  });
}

TEST(CollectiveGradients, WrongShapesAreRefused) {
  run_thread_ranks({1, 1, 2}, [](Mesh& mesh) {
    for (int kind = 0; kind < 2; ++kind) {
      try {
        if (kind == 0) scatter_rows(at::ones({3, 2}), mesh.tensor());
        if (kind == 1) gather_columns(at::ones({3, 2}), 5 + mesh.rank() * 100, mesh.tensor());
        require(false, "a wrong shape went unseen");
      } catch (const Error& e) {
        require(e.code() == ExitCode::kBug, e.what());
      }
    }
  });
}

}  // namespace
}  // namespace plait
