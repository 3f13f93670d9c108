// Collectives made of sends and receives between processes, over shared memory and over Gloo.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "plait/comm/ring_group.h"
#include "tests/comm/collective_cases.h"
#include "tests/comm/process_ranks.h"

namespace plait {
namespace {

using std::chrono::milliseconds;

std::vector<testing::ProcessResult> run_rings(int n, const std::string& backend, const std::function<void(Mesh&, ProcessGroup&)>& body) {
  testing::Listener listener;
  return testing::run_processes(
      n,
      [&](int rank) {
        at::set_num_threads(1);
        auto options = testing::options_of(rank, n, listener, milliseconds(60000));
        options.backend = backend;
        auto mesh = connect_mesh({n, 1, 1}, options);
        ProcessGroupPtr ring = make_ring_group(mesh->world());
        body(*mesh, *ring);
        mesh->world().barrier();
      },
      std::chrono::seconds(120));
}

TEST(RingGroupProcesses, EveryOperation) {
  for (const char* backend : {"shm", "gloo"})
    for (int n : {2, 3})
      for (const auto& result : run_rings(n, backend, [](Mesh&, ProcessGroup& ring) {
             testing::every_operation(ring, {{1}, {5, 4099}, {0}});
             testing::two_in_flight_case(ring);
           }))
        EXPECT_EQ(result.exit_code, 0) << backend << " signal " << result.signal << ": " << result.message;
}

// Over shared memory the sums have the collective's bits.
TEST(RingGroupProcesses, SameBitsAsSharedMemory) {
  auto body = [](Mesh& mesh, ProcessGroup& ring) {
    for (auto type : {at::kFloat, at::kBFloat16})
      for (int64_t count : {5, 8192, 300001}) {
        at::Tensor a =
            (at::arange(count, at::kDouble) * 12.9898 + static_cast<double>(mesh.rank())).sin().mul_(1 + 1000 * mesh.rank()).to(type);
        at::Tensor b = a.clone();
        mesh.world().all_reduce(a)->wait();
        ring.all_reduce(b)->wait();
        testing::require_equal(b, a, cat(c10::toString(type), " ", count));
      }
  };
  for (const auto& result : run_rings(3, "shm", body))
    EXPECT_EQ(result.exit_code, 0) << "signal " << result.signal << ": " << result.message;
}

TEST(RingGroupProcesses, LostPeerIsNamed) {
  auto results = run_rings(3, "shm", [](Mesh& mesh, ProcessGroup& ring) {
    at::Tensor x = at::ones({100000});
    ring.all_reduce(x)->wait();
    if (mesh.rank() == 1) ::kill(::getpid(), SIGKILL);
    ring.all_reduce(x)->wait();
  });
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::kPeerLost)) << results[rank].message;
    EXPECT_NE(results[rank].message.find("rank 1"), std::string::npos) << results[rank].message;
  }
}

}  // namespace
}  // namespace plait
