// Gloo between real processes: the same cases as in threads, start-up errors, and ranks that die or stop.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/comm/collective_cases.h"
#include "tests/comm/process_ranks.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Listener;
using testing::options_of;
using testing::run_processes;

void expect_all_well(const std::vector<testing::ProcessResult>& results) {
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i].exit_code, 0) << "rank " << i << " signal " << results[i].signal << ": " << results[i].message;
}

std::vector<testing::ProcessResult> run_mesh(const MeshLayout& layout, const std::function<void(Mesh&)>& body,
                                             milliseconds timeout = milliseconds(60000)) {
  Listener listener;
  return run_processes(
      static_cast<int>(layout.world_size()),
      [&](int rank) {
        at::set_num_threads(1);
        auto mesh = connect_mesh(layout, options_of(rank, layout.world_size(), listener, timeout));
        body(*mesh);
      },
      seconds(120));
}

TEST(GlooProcesses, EveryOperationTypeAndSize) {
  for (int64_t n : {1, 2, 3})
    expect_all_well(run_mesh({n, 1, 1}, [](Mesh& mesh) { testing::every_operation(mesh.world(), {{1}, {3, 5}, {5, 1031}}); }));
}

TEST(GlooProcesses, GroupsOfEveryAxis) {
  expect_all_well(run_mesh({2, 1, 2}, [](Mesh& mesh) {
    for (ProcessGroup* group : {&mesh.data(), &mesh.pipeline(), &mesh.tensor(), &mesh.world()}) {
      testing::all_reduce_case(*group, at::kFloat, {4, 3});
      testing::all_gather_case(*group, at::kBFloat16, {2, 3});
    }
  }));
}

TEST(GlooProcesses, BackToBackAndTwoInFlight) {
  expect_all_well(run_mesh({2, 1, 1}, [](Mesh& mesh) {
    testing::back_to_back_case(mesh.world(), 300);
    testing::two_in_flight_case(mesh.world());
  }));
}

TEST(GlooProcesses, KilledRankIsSeenByAll) {
  auto results = run_mesh({3, 1, 1}, [](Mesh& mesh) {
    at::Tensor x = at::ones({1000});
    for (int call = 0; call < 3; ++call) mesh.world().all_reduce(x)->wait();
    if (mesh.rank() == 1) ::kill(::getpid(), SIGKILL);
    mesh.world().all_reduce(x)->wait();
  });
  EXPECT_EQ(results[1].signal, SIGKILL);
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::kPeerLost))
        << "signal " << results[rank].signal << ' ' << results[rank].message;
    EXPECT_LT(results[rank].seconds - results[1].seconds, 10.0);
    EXPECT_NE(results[rank].message.find(cat("rank ", rank, " (dp ", rank, ", pp 0, tp 0)")), std::string::npos) << results[rank].message;
    EXPECT_NE(results[rank].message.find("all_reduce of 1000 x Float in group world (ranks 0, 1, 2)"), std::string::npos)
        << results[rank].message;
  }
}

TEST(GlooProcesses, KilledRankIsSeenInReceive) {
  auto results = run_mesh({1, 2, 1}, [](Mesh& mesh) {
    at::Tensor x = at::ones({1000});
    if (mesh.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(200));
      ::kill(::getpid(), SIGKILL);
    }
    mesh.pipeline().recv(x, 1, 3)->wait();
  });
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::kPeerLost)) << results[0].message;
  EXPECT_NE(results[0].message.find("recv of 1000 x Float with rank 1 in group pipeline"), std::string::npos) << results[0].message;
  EXPECT_LT(results[0].seconds - results[1].seconds, 10.0);
}

TEST(GlooProcesses, StoppedRankIsAHang) {
  Listener listener;
  auto results = run_processes(
      2,
      [&](int rank) {
        auto mesh = connect_mesh({2, 1, 1}, options_of(rank, 2, listener, milliseconds(2500)));
        if (rank == 1) std::this_thread::sleep_for(seconds(8));  // alive, connected, and silent
        at::Tensor x = at::ones({10});
        if (rank == 0) mesh->world().all_reduce(x)->wait();
      },
      seconds(60));
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::kHang)) << results[0].message;
  EXPECT_NE(results[0].message.find("timed out"), std::string::npos) << results[0].message;
}

// GLOO_SOCKET_IFNAME may be a list, as in torch.distributed.
TEST(GlooProcesses, SeveralInterfaces) {
  ::setenv("GLOO_SOCKET_IFNAME", "lo,lo", 1);
  auto results = run_mesh({2, 1, 1}, [](Mesh& mesh) {
    testing::every_operation(mesh.world(), {{3, 5}, {2, 7001}});
    testing::back_to_back_case(mesh.world(), 50);
    testing::two_in_flight_case(mesh.world());
  });
  ::unsetenv("GLOO_SOCKET_IFNAME");
  expect_all_well(results);
}

TEST(GlooProcesses, MissingCudaPluginIsNamed) {
  auto results = run_processes(
      1,
      [&](int) {
        RendezvousOptions options;
        options.backend = "nccl";
        connect_mesh({1, 1, 1}, options);
      },
      seconds(60));
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::kResource));
  EXPECT_NE(results[0].message.find("the plugin libplait_cuda.so is neither "), std::string::npos) << results[0].message;
}

// All eight ranks connected and self-tested: the larger part of a run's start-up.
TEST(GlooProcesses, EightRanks) {
  auto results = run_mesh({2, 2, 2}, [](Mesh& mesh) { testing::all_reduce_case(mesh.world(), at::kFloat, {8}); });
  expect_all_well(results);
  double slowest = 0;
  for (const auto& result : results) slowest = std::max(slowest, result.seconds);
  std::printf("8 ranks: %.2f s from fork to exit\n", slowest);
}

}  // namespace
}  // namespace plait
