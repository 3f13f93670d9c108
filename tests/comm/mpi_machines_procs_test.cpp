// Groups over several machines: shared memory inside, MPI between. The processes are told which machine they are on.
#include <linux/capability.h>
#include <sys/syscall.h>

#include <thread>

#include "tests/comm/hierarchical_cases.h"
#include "tests/comm/mpi_ranks.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::run_rank;
using testing::variable_number;

class MpiMachines : public testing::MpiJobTest {};

TEST_P(MpiMachines, EveryOperation) {
  for (int n : {3, 4}) expect_well(n, "MachinesEveryOperation");
}
TEST(MpiRank, DISABLED_MachinesEveryOperation) {
  const int n = variable_number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
  const auto machines = n == 3 ? std::vector<std::string>{"a", "a", "b"} : std::vector<std::string>{"a", "b", "b", "b"};
  auto body = [](Mesh& mesh) {
    testing::every_operation(mesh.world(), {{1}, {3, 5}, {2, 7001}});
    testing::all_reduce_case(mesh.world(), at::kFloat, {0});
    testing::all_reduce_case(mesh.world(), at::kFloat, {600001});
    testing::all_gather_case(mesh.world(), at::kFloat, {3, 500001});
    testing::reduce_scatter_case(mesh.world(), at::kFloat, {1, 300001});
    testing::back_to_back_case(mesh.world(), 200);
    testing::two_in_flight_case(mesh.world());
  };
  run_rank({n, 1, 1}, body, milliseconds(60000), machines);
}

TEST_P(MpiMachines, OrderOfSums) { expect_well(5, "MachinesOrderOfSums"); }
TEST(MpiRank, DISABLED_MachinesOrderOfSums) {
  run_rank({5, 1, 1}, testing::order_of_sums_case, milliseconds(60000), {"a", "b", "a", "b", "b"});
}

// The world spans the machines; tensor ranks share one, data ranks do not: MPI's own groups beside it.
TEST_P(MpiMachines, BesideFlatGroups) { expect_well(4, "MachinesBesideFlatGroups"); }
TEST(MpiRank, DISABLED_MachinesBesideFlatGroups) {
  auto body = [](Mesh& mesh) {
    testing::axes_and_messages_case(mesh);
    // A long message through shared memory that its receiver wants before it comes to the sender's next operation, which is MPI's.
    const int64_t n = 1500000, first = mesh.rank() % 2 == 0;
    at::Tensor large = at::full({n}, 3.0), got = at::zeros({n}), sum = at::ones({10});
    WorkPtr sent = first ? mesh.world().send(large, mesh.rank() + 1, 1) : nullptr;
    if (!first) mesh.world().recv(got, mesh.rank() - 1, 1)->wait();
    mesh.tensor().all_reduce(sum)->wait();
    if (first) sent->wait();
    else testing::require_equal(got, large, "message");
    mesh.world().barrier();
  };
  run_rank({2, 1, 2}, body, milliseconds(20000), {"a", "a", "b", "b"});
}

TEST_P(MpiMachines, KeepEarlierMessagesGoing) { expect_well(3, "MachinesKeepEarlierMessagesGoing"); }
TEST(MpiRank, DISABLED_MachinesKeepEarlierMessagesGoing) {
  run_rank({3, 1, 1}, testing::earlier_messages_case, milliseconds(20000), {"a", "a", "b"});
}

// On its own machine a lost rank is noticed in shared memory, on the others by their leader.
const std::vector<std::string>& words_of_lost_rank() {
  static const std::string in_group = ": all_reduce of 1000 x Float in group world (ranks 0, 1, 2, 3) lost a peer: rank 3 ";
  static const std::vector<std::string> words{cat("rank 0 (dp 0, pp 0, tp 0)", in_group), cat("rank 2 (dp 2, pp 0, tp 0)", in_group)};
  return words;
}

void lose_last_rank(int speakers, const std::function<void()>& its_end) {
  try {
    auto body = [&](Mesh& mesh) {
      at::Tensor x = at::ones({1000});
      for (int call = 0; call < 3; ++call) mesh.world().all_reduce(x)->wait();
      if (mesh.rank() == 3) its_end();
      mesh.world().all_reduce(x)->wait();
      mesh.world().all_reduce(x)->wait();
    };
    run_rank({4, 1, 1}, body, milliseconds(60000), {"a", "a", "b", "b"});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    testing::stand_until_all_have_spoken(speakers);
    throw;
  }
}

TEST_P(MpiMachines, RankThatGivesUpIsNamed) { expect_failure(4, "MachinesGivesUp", words_of_lost_rank()); }
TEST(MpiRank, DISABLED_MachinesGivesUp) {
  lose_last_rank(4, [] { throw std::runtime_error("gave up"); });
}

TEST_P(MpiMachines, KilledRankIsNamed) {
  if (GetParam() != std::string(detail::kOpenMpiPluginFile))
    GTEST_SKIP() << "MPICH's launcher ends the others before they can say anything";
  launcher_.push_back("--enable-recovery");
  auto done = testing::run_job(launcher_, 4, "MachinesKilled");
  for (const auto& words : words_of_lost_rank())
    EXPECT_NE(done.output.find(words), std::string::npos) << words << " is not in\n" << done.output;
}
TEST(MpiRank, DISABLED_MachinesKilled) {
  lose_last_rank(3, [] { ::kill(::getpid(), SIGKILL); });
}

TEST_P(MpiMachines, SilentRankIsAHang) {
  expect_failure(3, "MachinesSilentRank", {"all_reduce of 10 x Float in group world (ranks 0, 1, 2) timed out: timed out after 1500 ms"});
}
TEST(MpiRank, DISABLED_MachinesSilentRank) {
  auto body = [](Mesh& mesh) {
    if (mesh.rank() == 2) std::this_thread::sleep_for(seconds(5));
    at::Tensor x = at::ones({10});
    if (mesh.rank() != 2) mesh.world().all_reduce(x)->wait();
  };
  run_rank({3, 1, 1}, body, milliseconds(1500), {"a", "a", "b"});
}

TEST_P(MpiMachines, SilentRankIsAHangBesideManyReceives) {
  expect_failure(3, "MachinesSilentRankManyReceives",
                 {"all_reduce of 10 x Float in group world (ranks 0, 1, 2) timed out: timed out after 1500 ms"});
}
TEST(MpiRank, DISABLED_MachinesSilentRankManyReceives) {
  auto body = [](Mesh& mesh) {
    if (mesh.rank() == 2) std::this_thread::sleep_for(seconds(5));
    at::Tensor x = at::ones({10}), unanswered = at::empty({300, 10});
    std::vector<WorkPtr> receives;
    for (int i = 0; mesh.rank() != 2 && i < 300; ++i) receives.push_back(mesh.world().recv(unanswered[i], 2, 100 + i));
    if (mesh.rank() != 2) mesh.world().all_reduce(x)->wait();
  };
  run_rank({3, 1, 1}, body, milliseconds(1500), {"a", "a", "b"});
}

// And no reason to keep the group's own thread from its work: what ends this rank's receives comes after the group's sum.
TEST_P(MpiMachines, SumBesideManyReceives) { expect_well(3, "MachinesSumBesideManyReceives"); }
TEST(MpiRank, DISABLED_MachinesSumBesideManyReceives) {
  auto body = [](Mesh& mesh) {
    for (int round = 0; round < 5; ++round) {
      at::Tensor sum = at::ones({1000}), got = at::empty({40, 10}), given = at::full({40, 10}, 3.0);
      std::vector<WorkPtr> messages;
      for (int i = 0; mesh.rank() != 2 && i < 40; ++i) messages.push_back(mesh.world().recv(got[i], 2, 100 + i));
      mesh.world().all_reduce(sum)->wait();
      for (int64_t to = 0; mesh.rank() == 2 && to < 2; ++to)
        for (int i = 0; i < 40; ++i) messages.push_back(mesh.world().send(given[i], to, 100 + i));
      for (const WorkPtr& message : messages) message->wait();
      testing::require_equal(sum, at::full({1000}, 3.0), "sum");
      if (mesh.rank() != 2) testing::require_equal(got, given, "messages after the sum");
    }
  };
  run_rank({3, 1, 1}, body, milliseconds(20000), {"a", "a", "b"});
}

// Ranks that may not look into each other's processes.
TEST_P(MpiMachines, WithoutTheRightToShare) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give its rights away";
  auto done = testing::run_job(launcher_, 3, "MachinesWithoutTheRight");
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_NE(done.output.find("the ranks of this machine share no memory (rank 1: "), std::string::npos) << done.output;
  EXPECT_NE(done.output.find("); mpi carries their messages"), std::string::npos) << done.output;
}
TEST(MpiRank, DISABLED_MachinesWithoutTheRight) {
  ::setenv("UCX_POSIX_USE_PROC_LINK", "n", 1);  // MPICH's own shared memory: by name, not through /proc either
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct rights[2]{};
  ASSERT_EQ(::syscall(SYS_capget, &header, rights), 0);
  for (auto* word : {&rights[0].effective, &rights[0].permitted}) *word &= ~(1U << CAP_SYS_PTRACE);
  ASSERT_EQ(::syscall(SYS_capset, &header, rights), 0);
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0);
  run_rank({3, 1, 1}, [](Mesh& mesh) { testing::all_reduce_case(mesh.world(), at::kFloat, {100}); }, milliseconds(60000), {"a", "a", "b"});
}

INSTANTIATE_TEST_SUITE_P(Libraries, MpiMachines, ::testing::Values(detail::kOpenMpiPluginFile, detail::kMpichPluginFile),
                         [](const auto& info) { return info.param == std::string(detail::kMpichPluginFile) ? "MPICH" : "OpenMPI"; });

}  // namespace
}  // namespace plait
