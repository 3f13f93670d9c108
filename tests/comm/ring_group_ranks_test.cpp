// Collectives made of sends and receives: every operation and type, the same bits as the backend's own, several in flight, and the pieces
// that products run between.
#include <gtest/gtest.h>

#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "plait/comm/ring_group.h"
#include "plait/comm/row_exchange.h"
#include "tests/comm/collective_cases.h"

namespace plait {
namespace {

using testing::require;

// Fractions whose sums depend on the order.
at::Tensor rough_values(int64_t rank, int64_t n, at::ScalarType type, int64_t salt) {
  at::Tensor index = at::arange(n, at::kDouble);
  return ((index * 12.9898 + static_cast<double>(rank * 78 + salt)).sin() * std::pow(10.0, static_cast<double>(rank % 3 * 2))).to(type);
}

TEST(RingGroup, EveryOperationTypeAndSize) {
  for (int64_t n : {1, 2, 3, 4})
    run_thread_ranks({n, 1, 1}, [](Mesh& mesh) {
      ProcessGroupPtr ring = make_ring_group(mesh.world());
      testing::every_operation(*ring, {{1}, {7}, {3, 5}, {2, 3, 17}, {5, 4099}, {0}});
    });
}

TEST(RingGroup, SameBitsAsTheBackend) {
  for (int64_t n : {2, 3, 4, 5})
    run_thread_ranks({n, 1, 1}, [](Mesh& mesh) {
      ProcessGroupPtr ring = make_ring_group(mesh.world());
      for (auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
        for (int64_t count : {1, 3, 8192, 20011, 100003}) {
          at::Tensor a = rough_values(mesh.rank(), count, type, 1), b = a.clone();
          mesh.world().all_reduce(a)->wait();
          ring->all_reduce(b)->wait();
          testing::require_equal(b, a, cat("all_reduce ", c10::toString(type), " ", count));
          at::Tensor whole = rough_values(mesh.rank(), count * mesh.world().size(), type, 2);
          at::Tensor c = at::zeros({count}, type), d = c.clone();
          mesh.world().reduce_scatter(c, whole)->wait();
          ring->reduce_scatter(d, whole)->wait();
          testing::require_equal(d, c, cat("reduce_scatter ", c10::toString(type), " ", count));
        }
    });
}

// Small and large ones mixed, looked at by done() on some ranks only: what follows the first messages starts at other moments there.
TEST(RingGroup, ManyInFlight) {
  run_thread_ranks({3, 1, 1}, [](Mesh& mesh) {
    ProcessGroupPtr ring = make_ring_group(mesh.world());
    testing::two_in_flight_case(*ring);
    for (int64_t round = 0; round < 20; ++round) {
      std::vector<at::Tensor> got, want;
      std::vector<WorkPtr> works;
      for (int64_t i = 0; i < 8; ++i) {
        int64_t count = i % 3 == 0 ? 5 + i : 20000 + 31 * i;
        at::Tensor x = at::full({count}, static_cast<double>(mesh.rank() * 10 + i + round), at::kFloat);
        works.push_back(ring->all_reduce(x));
        got.push_back(x);
        want.push_back(at::full({count}, static_cast<double>(30 + 3 * (i + round)), at::kFloat));
        if (mesh.rank() == 1) works[works.size() / 2]->done();
        if (mesh.rank() == 2 && i == 4) works[1]->wait();
      }
      for (size_t i = works.size(); i-- > 0;) works[i]->wait();
      for (size_t i = 0; i < works.size(); ++i) testing::require_equal(got[i], want[i], cat("operation ", i, " of round ", round));
    }
  });
}

std::vector<Span> spans_of(const std::vector<int64_t>& sizes) {
  std::vector<Span> pieces;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    pieces.push_back({begin, size});
    begin += size;
  }
  return pieces;
}

// Uneven and empty pieces; each given once; the memory given may change after finish().
TEST(RowExchange, PiecesOfAnySize) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{4}, {3, 3}, {5, 0}, {0, 4, 3}, {2, 2, 2, 1}, {0, 0, 0, 6}})
    for (bool beside : {true, false})
      run_thread_ranks({static_cast<int64_t>(sizes.size()), 1, 1}, [&](Mesh& mesh) {
        ProcessGroup& group = mesh.world();
        auto pieces = spans_of(sizes);
        const int64_t rows = pieces.back().end(), n = group.size();
        const Span own = pieces[static_cast<size_t>(group.rank())];
        at::Tensor all = testing::rank_values(0, {rows, 3}, at::kFloat, 5);

        at::Tensor whole = at::full({rows, 3}, -1.0, at::kFloat);
        whole.narrow(0, own.begin, own.size).copy_(all.narrow(0, own.begin, own.size));
        RowGather gather(group, whole, pieces, beside);
        std::vector<bool> seen(static_cast<size_t>(rows));
        for (int64_t step = 0; step < n; ++step) {
          Span now = gather.next();
          if (step == 0) require(now.begin == own.begin && now.size == own.size, "the own piece comes first");
          testing::require_equal(whole.narrow(0, now.begin, now.size), all.narrow(0, now.begin, now.size), "gathered piece");
          for (int64_t row = now.begin; row < now.end(); ++row) seen[static_cast<size_t>(row)] = true;
        }
        gather.finish();
        require(std::find(seen.begin(), seen.end(), false) == seen.end(), "every piece once");

        RowScatterSum scatter(group, pieces, {3}, all.options(), beside);
        at::Tensor mine = rough_values(group.rank(), rows * 3, at::kFloat, 7).view({rows, 3});
        for (int64_t step = 0; step < n; ++step) {
          const Span& piece = pieces[static_cast<size_t>(scatter.owner(step))];
          scatter.give(step, mine.narrow(0, piece.begin, piece.size));
        }
        at::Tensor sum = at::empty({own.size, 3}, at::kFloat);
        scatter.sum(sum);
        scatter.finish();
        at::Tensor want = rough_values(0, rows * 3, at::kFloat, 7);
        for (int64_t r = 1; r < n; ++r) want = want + rough_values(r, rows * 3, at::kFloat, 7);
        testing::require_equal(sum, want.view({rows, 3}).narrow(0, own.begin, own.size), "sum in rank order");
      });
}

TEST(RowExchange, RefusesPiecesThatDoNotFit) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    EXPECT_THROW(RowGather(mesh.world(), at::zeros({4, 2}), even_rows(4, 3), true), Error);
    EXPECT_THROW(make_ring_group(mesh.world())->all_reduce(at::zeros({4, 2}).t()), Error);
  });
}

}  // namespace
}  // namespace plait
