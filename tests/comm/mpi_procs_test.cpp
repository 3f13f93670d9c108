// Groups over MPI alone.
#include <thread>

#include "plait/comm/mpi_backend.h"
#include "tests/comm/collective_cases.h"
#include "tests/comm/mpi_ranks.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_rank;
using testing::variable_number;

class MpiProcesses : public testing::MpiJobTest {};

TEST_P(MpiProcesses, EveryOperationTypeAndSize) {
  for (int n : {2, 3}) expect_well(n, "EveryOperation");
}
TEST(MpiRank, DISABLED_EveryOperation) {
  run_rank({variable_number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), 1, 1}, [](Mesh& mesh) {
    ProcessGroup& world = mesh.world();
    testing::every_operation(world, {{1}, {3, 5}, {5, 1031}, {2, 70007}});
    testing::all_reduce_case(world, at::kFloat, {0});
    testing::all_gather_case(world, at::kBool, {3});
    testing::all_reduce_case(world, at::kInt, {70001});
    testing::back_to_back_case(world, 500);
    testing::two_in_flight_case(world);
  });
}

// Tensors longer than a piece of an exchange.
TEST_P(MpiProcesses, InPieces) { expect_well(3, "InPieces"); }
TEST(MpiRank, DISABLED_InPieces) {
  run_rank({3, 1, 1}, [](Mesh& mesh) {
    ProcessGroup& world = mesh.world();
    const int64_t n = detail::MpiBackend::kPieceBytes + 1001, rank = world.rank();
    // Bytes that differ by rank, block and place.
    auto values = [&](int64_t r, int64_t block) {
      at::Tensor x = at::full({n}, r + 1 + 10 * block, at::kByte);
      x.narrow(0, n - 500, 500).fill_(50 + r + 10 * block);
      return x;
    };
    at::Tensor sum = values(rank, 0);
    world.all_reduce(sum)->wait();
    testing::require_equal(sum, values(0, 0) + values(1, 0) + values(2, 0), "all_reduce");
    at::Tensor all = at::empty({3 * n}, at::kByte);
    world.all_gather(all, values(rank, 0))->wait();
    for (int64_t r = 0; r < 3; ++r) testing::require_equal(all.narrow(0, r * n, n), values(r, 0), "all_gather");
    at::Tensor part = at::empty({n}, at::kByte);
    world.reduce_scatter(part, at::cat({values(rank, 0), values(rank, 1), values(rank, 2)}))->wait();
    testing::require_equal(part, values(0, rank) + values(1, rank) + values(2, rank), "reduce_scatter");
    at::Tensor whole = values(rank, 0);
    world.broadcast(whole, 1)->wait();
    testing::require_equal(whole, values(1, 0), "broadcast");
  });
}

// The same bits as a sum in rank order, in fp32 for 16-bit types: what shared memory and threads give.
TEST_P(MpiProcesses, SumsInRankOrder) { expect_well(3, "SumsInRankOrder"); }
TEST(MpiRank, DISABLED_SumsInRankOrder) {
  run_rank({1, 1, 3}, [](Mesh& mesh) {
    for (auto type : {at::kFloat, at::kBFloat16, at::kHalf})
      for (int64_t n : {99, 300000}) {
        auto values = [&](int64_t rank) { return at::sin(at::arange(n, at::kDouble) * static_cast<double>(rank + 1)).to(type); };
        at::Tensor sum = (values(0).to(at::kFloat) + values(1).to(at::kFloat) + values(2).to(at::kFloat)).to(type);
        at::Tensor got = values(mesh.rank()), part = at::empty({n / 3}, type);
        mesh.tensor().reduce_scatter(part, got)->wait();
        testing::require_equal(part, sum.narrow(0, mesh.rank() * (n / 3), n / 3), "reduce_scatter");
        mesh.tensor().all_reduce(got)->wait();
        testing::require_equal(got, sum, "all_reduce");
      }
  });
}

// Groups of every axis; long messages both ways at once while another group waits for a collective of several steps.
TEST_P(MpiProcesses, GroupsOfEveryAxis) { expect_well(4, "GroupsOfEveryAxis"); }
TEST(MpiRank, DISABLED_GroupsOfEveryAxis) {
  run_rank({2, 2, 1}, [](Mesh& mesh) {
    for (ProcessGroup* group : {&mesh.data(), &mesh.pipeline(), &mesh.tensor(), &mesh.world()}) {
      testing::all_reduce_case(*group, at::kFloat, {4, 3});
      testing::all_gather_case(*group, at::kBFloat16, {2, 3});
    }
    const int64_t peer = 1 - mesh.pipeline().rank(), n = 500000;
    for (int round = 0; round < 3; ++round) {
      at::Tensor out = at::full({n}, static_cast<double>(mesh.rank() + round)), in = at::zeros({n}), sum = at::ones({n});
      auto sent = mesh.pipeline().send(out, peer, 4);
      auto reduced = mesh.data().all_reduce(sum);
      if (mesh.rank() % 2 == 0) reduced->wait();  // the others wait for the message first
      mesh.pipeline().recv(in, peer, 4)->wait();
      reduced->wait();
      sent->wait();
      testing::require_equal(sum, at::full({n}, 2.0), "all_reduce between");
      testing::require_equal(in, at::full({n}, static_cast<double>(mesh.pipeline().members()[static_cast<size_t>(peer)] + round)),
                             "message");
    }
  });
}

TEST_P(MpiProcesses, SilentRankIsAHang) {
  expect_failure(2, "SilentRank",
                 {"rank 0 (dp 0, pp 0, tp 0): all_reduce of 10 x Float in group world (ranks 0, 1) timed out: timed out after 1500 ms"});
}
TEST(MpiRank, DISABLED_SilentRank) {
  run_rank(
      {2, 1, 1},
      [](Mesh& mesh) {
        if (mesh.rank() == 1) std::this_thread::sleep_for(seconds(5));
        at::Tensor x = at::ones({10});
        if (mesh.rank() == 0) mesh.world().all_reduce(x)->wait();
      },
      milliseconds(1500));
}

// Many requests under way make every call of MPI long, which is no sign that anything moves.
TEST_P(MpiProcesses, SilentRankIsAHangBesideManyReceives) {
  expect_failure(2, "SilentRankManyReceives",
                 {"rank 0 (dp 0, pp 0, tp 0): all_reduce of 10 x Float in group world (ranks 0, 1) timed out: timed out after 1500 ms"});
}
TEST(MpiRank, DISABLED_SilentRankManyReceives) {
  run_rank(
      {2, 1, 1},
      [](Mesh& mesh) {
        if (mesh.rank() == 1) std::this_thread::sleep_for(seconds(5));
        at::Tensor x = at::ones({10}), unanswered = at::empty({300, 10});
        std::vector<WorkPtr> receives;
        for (int i = 0; mesh.rank() == 0 && i < 300; ++i) receives.push_back(mesh.world().recv(unanswered[i], 1, 100 + i));
        if (mesh.rank() == 0) mesh.world().all_reduce(x)->wait();
      },
      milliseconds(1500));
}

// The launcher of a dead rank ends the job; a rank that only gave up is named by those that wait for it.
TEST_P(MpiProcesses, RankThatGivesUpIsNamed) {
  expect_failure(2, "GivesUp", {"recv of 7 x Float with rank 1 in group world (ranks 0, 1) lost a peer: "});
}
TEST(MpiRank, DISABLED_GivesUp) {
  try {
    run_rank({2, 1, 1}, [](Mesh& mesh) {
      at::Tensor x = at::ones({7});
      if (mesh.rank() == 0) mesh.world().recv(x, 1, 3)->wait();
      throw std::runtime_error("gave up");
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    testing::stand_until_all_have_spoken(2);
    throw;
  }
}

TEST_P(MpiProcesses, MessageOfAnotherSizeIsAMistake) { expect_failure(2, "OtherSize", {"12 bytes shorter than its receive"}); }
TEST(MpiRank, DISABLED_OtherSize) {
  run_rank({2, 1, 1}, [](Mesh& mesh) {
    at::Tensor x = at::ones({mesh.rank() == 0 ? 10 : 7});
    if (mesh.rank() == 0) mesh.world().recv(x, 1, 3)->wait();
    else mesh.world().send(x, 0, 3)->wait();
    mesh.world().barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Libraries, MpiProcesses, ::testing::Values(detail::kOpenMpiPluginFile, detail::kMpichPluginFile),
                         [](const auto& info) { return info.param == std::string(detail::kMpichPluginFile) ? "MPICH" : "OpenMPI"; });

}  // namespace
}  // namespace plait
