// MPI between real processes, for each library whose plugin is built: mpirun starts this program once more, with a disabled test of it as
// what every rank does. Where there is no plugin or no launcher, the tests say so.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <thread>

#include "plait/comm/mpi_backend.h"
#include "plait/comm/plugin_paths.h"
#include "tests/comm/hierarchical_cases.h"
#include "tests/comm/process_ranks.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct MpiJobResult {
  int exit_code = -1;
  std::string output;
};

std::string own_path() {
  std::string path(4096, '\0');
  ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(static_cast<size_t>(std::max<ssize_t>(0, length)));
  return path;
}

std::string find_program(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/usr/local/bin/"})
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  return "";
}

// Starts `body` (MpiRank.DISABLED_<body>) on n ranks and waits for the end of the launcher.
MpiJobResult run_job(std::vector<std::string> words, int n, const std::string& body) {
  for (const auto& word : {std::string("-n"), cat(n), own_path(), std::string("--gtest_also_run_disabled_tests"),
                           cat("--gtest_filter=MpiRank.DISABLED_", body)})
    words.push_back(word);
  const int port = testing::Listener().port;
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::setenv("PLAIT_TEST_PORT", cat(port).c_str(), 1);
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) ::setenv(name, "1", 1);
    ::unsetenv("GTEST_TOTAL_SHARDS");
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::close(ends[0]);
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  MpiJobResult result;
  const auto limit = std::chrono::steady_clock::now() + seconds(90);
  bool stopped = false;
  char buffer[8192];
  pollfd readable{ends[0], POLLIN, 0};
  while (true) {
    if (!stopped && std::chrono::steady_clock::now() > limit) {
      ::kill(child, SIGTERM);  // the launcher ends its ranks
      stopped = true;
      result.output += "\nstopped after 90 s\n";
    }
    if (::poll(&readable, 1, 500) <= 0) continue;
    const ssize_t count = ::read(ends[0], buffer, sizeof buffer);
    if (count <= 0) break;
    result.output.append(buffer, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

// Parameter: the plugin's file.
class MpiProcesses : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const bool openmpi = GetParam() == std::string(detail::kOpenMpiPluginFile);
    launcher_ = openmpi ? std::vector<std::string>{find_program("mpirun.openmpi"), "--oversubscribe"}
                        : std::vector<std::string>{find_program("mpiexec.hydra")};
    if (detail::find_plugin(GetParam()).empty() || launcher_[0].empty())
      GTEST_SKIP() << "no " << GetParam() << " or no launcher here: setup/test_launchers.sh installs what they need";
  }
  void expect_well(int n, const std::string& body) {
    auto done = run_job(launcher_, n, body);
    EXPECT_EQ(done.exit_code, 0) << done.output;
    EXPECT_NE(done.output.find("1 test from 1 test suite ran"), std::string::npos) << done.output;
  }
  void expect_failure(int n, const std::string& body, const std::vector<std::string>& fragments) {
    auto done = run_job(launcher_, n, body);
    EXPECT_NE(done.exit_code, 0) << done.output;
    for (const auto& fragment : fragments)
      EXPECT_NE(done.output.find(fragment), std::string::npos) << fragment << " is not in\n" << done.output;
  }
  std::vector<std::string> launcher_;
};

int variable_number(const char* first, const char* second) {
  const char* text = std::getenv(first);
  if (!text) text = std::getenv(second);
  return text ? std::atoi(text) : -1;
}

// What every rank does. machines: by rank, which of them it is told to be on; none: this one.
void run_rank(const MeshLayout& layout, const std::function<void(Mesh&)>& body, milliseconds timeout = milliseconds(60000),
              const std::vector<std::string>& machines = {}) {
  at::set_num_threads(1);
  RendezvousOptions options;
  options.rank = options.local_rank = variable_number("OMPI_COMM_WORLD_RANK", "PMI_RANK");
  options.world_size = variable_number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
  options.master_port = variable_number("PLAIT_TEST_PORT", "");
  options.listen = options.rank == 0;
  options.secret = "secret of a test";
  options.timeout = timeout;
  options.rendezvous_timeout = seconds(60);
  options.backend = "mpi";
  ASSERT_EQ(layout.world_size(), options.world_size) << "these tests are started by mpirun";
  if (!machines.empty()) options.machine = machines.at(static_cast<size_t>(options.rank));
  auto mesh = connect_mesh(layout, options);
  body(*mesh);
}

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
    // Its process stands for a moment, as that of a rank that writes its last words: mpirun ends the job when it is gone.
    std::this_thread::sleep_for(seconds(2));
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

// Groups over several machines: shared memory inside, MPI between.
TEST_P(MpiProcesses, MachinesEveryOperation) {
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

TEST_P(MpiProcesses, MachinesOrderOfSums) { expect_well(5, "MachinesOrderOfSums"); }
TEST(MpiRank, DISABLED_MachinesOrderOfSums) {
  run_rank({5, 1, 1}, testing::order_of_sums_case, milliseconds(60000), {"a", "b", "a", "b", "b"});
}

// The world spans the machines; tensor ranks share one, data ranks do not: MPI's own groups beside it.
TEST_P(MpiProcesses, MachinesBesideFlatGroups) { expect_well(4, "MachinesBesideFlatGroups"); }
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

// Each wait needs what other ranks do only when an earlier long message of this rank has come.
TEST_P(MpiProcesses, MachinesKeepEarlierMessagesGoing) { expect_well(3, "MachinesKeepEarlierMessagesGoing"); }
TEST(MpiRank, DISABLED_MachinesKeepEarlierMessagesGoing) {
  auto chain = [](Mesh& mesh, const std::vector<int64_t>& ranks) {  // 0 -> 1 -> 2 -> 0 of `ranks`, the first message long
    ProcessGroup& world = mesh.world();
    const auto at = std::find(ranks.begin(), ranks.end(), mesh.rank()) - ranks.begin();
    at::Tensor large = at::full({3000000}, 4.0), small = at::full({5}, 6.0), got = at::zeros({at == 1 ? 3000000 : 5});
    const int64_t next = ranks[static_cast<size_t>((at + 1) % 3)], previous = ranks[static_cast<size_t>((at + 2) % 3)];
    WorkPtr sent = at == 0 ? world.send(large, next, 2) : nullptr;
    world.recv(got, previous, 2)->wait();
    if (at != 0) sent = world.send(small, next, 2);
    sent->wait();
    testing::require_equal(got, at == 1 ? large : small, cat("message to place ", at));
  };
  auto body = [&](Mesh& mesh) {
    for (int round = 0; round < 3; ++round) {
      chain(mesh, {0, 2, 1});  // waits for shared memory while MPI has something left
      chain(mesh, {0, 1, 2});  // and the other way round
      at::Tensor large = at::full({3000000}, 4.0), got = at::zeros({3000000}), sum = at::ones({1000});
      WorkPtr sent = mesh.rank() == 1 ? mesh.world().send(large, 2, 3) : nullptr;  // rank 1 leads no machine
      if (mesh.rank() == 2) mesh.world().recv(got, 1, 3)->wait();
      mesh.world().all_reduce(sum)->wait();
      if (sent) sent->wait();
      testing::require_equal(sum, at::full({1000}, 3.0), "sum");
      if (mesh.rank() == 2) testing::require_equal(got, large, "message before the sum");
    }
  };
  run_rank({3, 1, 1}, body, milliseconds(20000), {"a", "a", "b"});
}

// On its own machine a lost rank is noticed in shared memory, on the others by their leader.
TEST_P(MpiProcesses, MachinesNameTheLostRank) {
  const std::string in_group = ": all_reduce of 1000 x Float in group world (ranks 0, 1, 2, 3) lost a peer: ";
  expect_failure(4, "MachinesLose",
                 {cat("rank 0 (dp 0, pp 0, tp 0)", in_group, "rank 3"), cat("rank 2 (dp 2, pp 0, tp 0)", in_group, "rank 3")});
}
TEST(MpiRank, DISABLED_MachinesLose) {
  const bool stays = variable_number("OMPI_COMM_WORLD_RANK", "PMI_RANK") != 3;
  try {
    auto body = [&](Mesh& mesh) {
      at::Tensor x = at::ones({1000});
      for (int call = 0; call < 3; ++call) mesh.world().all_reduce(x)->wait();
      if (!stays) throw std::runtime_error("gave up");
      mesh.world().all_reduce(x)->wait();
      mesh.world().all_reduce(x)->wait();
    };
    run_rank({4, 1, 1}, body, milliseconds(60000), {"a", "a", "b", "b"});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::this_thread::sleep_for(seconds(3));  // as GivesUp
    throw;
  }
}

TEST_P(MpiProcesses, MachinesSilentRankIsAHang) {
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

// Ranks that may not look into each other's processes.
TEST_P(MpiProcesses, MachinesWithoutTheRightToShare) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give its rights away";
  auto done = run_job(launcher_, 3, "MachinesWithoutTheRight");
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

INSTANTIATE_TEST_SUITE_P(Libraries, MpiProcesses, ::testing::Values(detail::kOpenMpiPluginFile, detail::kMpichPluginFile),
                         [](const auto& info) { return info.param == std::string(detail::kMpichPluginFile) ? "MPICH" : "OpenMPI"; });

}  // namespace
}  // namespace plait
