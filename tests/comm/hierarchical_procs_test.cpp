// Groups over several machines with more than one rank on some: real processes that are told which machine they are on.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "plait/tensor/parallel.h"
#include "tests/comm/hierarchical_cases.h"
#include "tests/comm/process_ranks.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// machines[rank] names the machine of a rank.
std::vector<testing::ProcessResult> run_machines(const std::vector<std::string>& machines, const MeshLayout& layout,
                                                 const std::function<void(Mesh&)>& body, milliseconds timeout = milliseconds(60000)) {
  testing::Listener listener;
  const int n = static_cast<int>(machines.size());
  return testing::run_processes(
      n,
      [&](int rank) {
        at::set_num_threads(1);
        auto options = testing::options_of(rank, n, listener, timeout);
        options.backend = "auto";
        options.machine = machines[static_cast<size_t>(rank)];
        auto mesh = connect_mesh(layout, options);
        body(*mesh);
        mesh->world().barrier();
      },
      seconds(120));
}

void expect_well(const std::vector<testing::ProcessResult>& results) {
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i].exit_code, 0) << "rank " << i << " signal " << results[i].signal << ": " << results[i].message;
}

// Machines of equal and of different size, and ranks that alternate between them.
TEST(HierarchicalProcesses, EveryOperationTypeAndSize) {
  for (const auto& machines : std::vector<std::vector<std::string>>{{"a", "a", "b", "b"}, {"a", "b", "a", "c", "a"}})
    expect_well(run_machines(machines, {static_cast<int64_t>(machines.size()), 1, 1}, [](Mesh& mesh) {
      testing::every_operation(mesh.world(), {{1}, {3, 5}, {2, 7001}});
    }));
}

TEST(HierarchicalProcesses, ManyUnderWay) {
  expect_well(run_machines({"a", "a", "b"}, {3, 1, 1}, [](Mesh& mesh) {
    testing::back_to_back_case(mesh.world(), 200);
    testing::two_in_flight_case(mesh.world());
  }));
}

TEST(HierarchicalProcesses, OrderOfSums) { expect_well(run_machines({"a", "b", "a", "b", "b"}, {5, 1, 1}, testing::order_of_sums_case)); }

TEST(HierarchicalProcesses, KeepEarlierMessagesGoing) {
  expect_well(run_machines({"a", "a", "b"}, {3, 1, 1}, testing::earlier_messages_case, milliseconds(20000)));
}

// Two axes inside the machines and one across.
TEST(HierarchicalProcesses, EveryAxisAndMessagesAcross) {
  expect_well(run_machines({"a", "a", "a", "a", "b", "b", "b", "b"}, {2, 2, 2}, testing::axes_and_messages_case));
}

// Also the ranks of the other machine end, soon and with the code of a lost peer.
TEST(HierarchicalProcesses, KilledRankEndsAll) {
  for (int killed : {0, 1, 3}) {
    auto results = run_machines({"a", "a", "b", "b"}, {4, 1, 1}, [&](Mesh& mesh) {
      at::Tensor x = at::ones({1000});
      for (int call = 0; call < 3; ++call) mesh.world().all_reduce(x)->wait();
      if (mesh.rank() == killed) ::kill(::getpid(), SIGKILL);
      mesh.world().all_reduce(x)->wait();
      mesh.world().all_reduce(x)->wait();
    });
    for (int rank = 0; rank < 4; ++rank) {
      const auto& result = results[static_cast<size_t>(rank)];
      if (rank == killed) continue;
      EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPeerLost)) << result.message;
      EXPECT_NE(result.message.find("all_reduce of 1000 x Float in group world"), std::string::npos) << result.message;
      EXPECT_LT(result.seconds - results[static_cast<size_t>(killed)].seconds, 10.0);
    }
  }
}

// A group that has a thread of its own leaves the rank's computation its threads.
TEST(HierarchicalProcesses, RanksKeepTheirThreads) {
  testing::Listener listener;
  auto results = testing::run_processes(
      3,
      [&](int rank) {
        auto options = testing::options_of(rank, 3, listener, seconds(60));
        options.backend = "auto";
        options.machine = rank < 2 ? "a" : "b";
        std::exception_ptr error;
        // A thread that has not computed anything yet, as the rank's own when it connects.
        std::thread computing([&] {
          try {
            at::set_num_threads(2);
            auto mesh = connect_mesh({3, 1, 1}, options);
            std::atomic<int> pieces = 0;
            parallel_ranges(0, 2, 1, [&](int64_t, int64_t) { ++pieces; });
            if (at::get_num_threads() != 2 || pieces != 2)
              throw std::runtime_error(cat(at::get_num_threads(), " threads, ", pieces.load(), " pieces"));
            mesh->world().barrier();
          } catch (...) {
            error = std::current_exception();
          }
        });
        computing.join();
        if (error) std::rethrow_exception(error);
      },
      seconds(120));
  expect_well(results);
}

// Ranks on machines of their own need no hierarchy, and shm refuses what it cannot do.
TEST(HierarchicalProcesses, OneRankEach) {
  expect_well(run_machines({"a", "b"}, {2, 1, 1}, [](Mesh& mesh) { testing::all_reduce_case(mesh.world(), at::kFloat, {9}); }));
}

}  // namespace
}  // namespace plait
