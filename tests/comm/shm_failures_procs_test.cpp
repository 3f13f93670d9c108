// Ranks that share memory and die, are stopped, or may not share it on some machine: what the others say and end with, and what is left.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "plait/comm/rendezvous_store.h"
#include "plait/comm/shared_buffer.h"
#include "plait/comm/shm_rank.h"
#include "tests/comm/collective_cases.h"
#include "tests/comm/process_ranks.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ProcessResult;

std::vector<ProcessResult> run_on_mesh(int n, const std::function<void(ProcessGroup&)>& body, const std::string& backend = "shm",
                                       milliseconds timeout = milliseconds(60000)) {
  testing::Listener listener;
  return testing::run_processes(
      n,
      [&](int rank) {
        at::set_num_threads(1);
        auto options = testing::options_of(rank, n, listener, timeout);
        options.backend = backend;
        auto mesh = connect_mesh({n, 1, 1}, options);
        body(mesh->data());
        mesh->world().barrier();
      },
      seconds(120));
}

void expect_no_failure(const std::vector<ProcessResult>& results) {
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i].exit_code, 0) << "rank " << i << " signal " << results[i].signal << ": " << results[i].message;
}

void expect_end(const ProcessResult& result, ExitCode code, const std::string& words) {
  EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.message;
  EXPECT_NE(result.message.find(words), std::string::npos) << result.message << "\n  lacks " << words;
}

// Of all processes of a test; zeros at first.
template <class Plain>
struct Everybodys {
  Plain* data;
  Everybodys() : data(static_cast<Plain*>(::mmap(nullptr, sizeof(Plain), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Everybodys() { ::munmap(data, sizeof(Plain)); }
  Everybodys(const Everybodys&) = delete;
};

// Descriptors of memory that this process lends.
std::vector<int> lent_descriptors() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().find("memfd:plait") != std::string::npos)
      found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

bool in_shared_memory(const void* data) {
  std::ifstream maps("/proc/self/maps");
  const auto at = reinterpret_cast<uintptr_t>(data);
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (at >= begin && at < end) return line.find("memfd:plait") != std::string::npos;
  }
  return false;
}

TEST(ShmFailures, AutoSharesMemoryThatNobodyElseMayOpen) {
  expect_no_failure(run_on_mesh(
      2,
      [](ProcessGroup& group) {
        at::Tensor x = shared_zeros(group, 100000, at::kFloat);
        testing::require(in_shared_memory(x.const_data_ptr()), "the tensor lies elsewhere");
        const auto descriptors = lent_descriptors();
        testing::require(descriptors.size() == 1, cat(descriptors.size(), " descriptors"));
        struct stat info {};
        testing::require(::fstat(descriptors[0], &info) == 0 && info.st_uid == ::geteuid(), "not this user's");
        testing::require((info.st_mode & 07777) == 0600, cat("mode ", info.st_mode & 07777));
        x.fill_(group.rank() + 1.0);
        group.all_reduce(x)->wait();
        testing::require_equal(x, at::full({100000}, 3.0), "sum");
      },
      "auto"));
}

// Killed, a process that has much to give back is ending for a while; it has ended before anybody has waited for it.
TEST(ShmFailures, LifeOfAProcessThatIsKilled) {
  using detail::Life;
  bool was_ending = false;
  for (int attempt = 0; attempt < 20 && !was_ending; ++attempt) {  // this process may sleep while that one ends
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      constexpr size_t kBytes = size_t{256} << 20;
      void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memset(memory, 1, kBytes);
      [[maybe_unused]] auto written = ::write(ends[1], "", 1);
      while (true) ::pause();
    }
    char ready = 1;
    EXPECT_EQ(::read(ends[0], &ready, 1), 1);
    const auto start_time = detail::process_start_time(child);
    auto life = [&] { return detail::process_life(child, start_time); };
    EXPECT_EQ(life(), Life::kAlive);
    EXPECT_EQ(detail::process_life(child, start_time + 1), Life::kEnded);
    ::kill(child, SIGKILL);
    while (life() != Life::kEnded) was_ending = was_ending || life() == Life::kEnding;
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(life(), Life::kEnded);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  EXPECT_TRUE(was_ending);
}

// A rank lends memory and dies before a peer has it mapped: lost, not "cannot open". By a wait, a look, or a message.
TEST(ShmFailures, RankKilledBeforeItsMemoryIsReached) {
  for (const char* how : {"wait", "look", "message"}) {
    auto results = run_on_mesh(2, [how = std::string(how)](ProcessGroup& group) {
      at::Tensor x = shared_zeros(group, 300000, at::kFloat);
      WorkPtr work;
      if (group.rank() == 0 && how == "look") work = group.all_reduce(x);
      std::this_thread::sleep_for(milliseconds(group.rank() == 1 ? 200 : 500));
      if (group.rank() == 1) {
        work = how == "message" ? group.send(x, 0, 0) : group.all_reduce(x);
        ::kill(::getpid(), SIGKILL);
      }
      if (how == "message") group.recv(x, 1, 0)->wait();
      if (how == "wait") group.all_reduce(x)->wait();
      for (int look = 0; look < 10000 && !work->done(); ++look) std::this_thread::sleep_for(milliseconds(1));
    });
    EXPECT_EQ(results[1].signal, SIGKILL);
    expect_end(results[0], ExitCode::kPeerLost, "lost a peer: rank 1 (process");
  }
}

// The same of a rank that nobody has waited for yet, by peers who may not look into what is left of it.
TEST(ShmFailures, RankKilledThatNobodyWaitedFor) {
  testing::Listener listener;
  auto results = testing::run_processes(
      2,
      [&](int rank) {
        at::set_num_threads(1);
        if (::geteuid() == 0)
          testing::require(::setresuid(65534, 65534, 65534) == 0 && ::prctl(PR_SET_DUMPABLE, 1) == 0, "rights are given away");
        if (rank == 1) {
          const pid_t child = ::fork();
          if (child > 0) {  // a launcher that is busy
            std::this_thread::sleep_for(seconds(3));
            ::kill(child, SIGKILL);
            ::waitpid(child, nullptr, 0);
            return;
          }
          ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        }
        auto options = testing::options_of(rank, 2, listener, milliseconds(60000));
        options.backend = "shm";
        auto mesh = connect_mesh({2, 1, 1}, options);
        at::Tensor x = shared_zeros(mesh->world(), 300000, at::kFloat);
        if (rank == 0) std::this_thread::sleep_for(milliseconds(200));
        auto work = mesh->world().all_reduce(x);
        if (rank == 1) ::kill(::getpid(), SIGKILL);
        work->wait();
      },
      seconds(120));
  expect_end(results[0], ExitCode::kPeerLost, "lost a peer: rank 1 (process");
}

// A rank dies between its place on the machine and the first group.
TEST(ShmFailures, RankKilledWhileGroupsAreMade) {
  testing::Listener listener;
  const milliseconds timeout(60000);
  auto results = testing::run_processes(
      3,
      [&](int rank) {
        auto options = testing::options_of(rank, 3, listener, timeout);
        options.backend = "shm";
        if (rank != 2) {
          connect_mesh({3, 1, 1}, options);
          return;
        }
        c10d::PrefixStore store("plait", detail::join_job(options).store);
        detail::ShmRank own(store, rank, 3, timeout);
        std::this_thread::sleep_for(milliseconds(500));  // the others wait for the group of all
        ::kill(::getpid(), SIGKILL);
      },
      seconds(120));
  for (size_t rank : {0, 1}) expect_end(results[rank], ExitCode::kPeerLost, "group world (ranks 0, 1, 2) did not connect: rank 2 (process");
}

// One of many waiters' time-out names the rank that everybody waits for.
TEST(ShmFailures, TimeOutNamesTheRankThatStandsStill) {
  auto results = run_on_mesh(
      4,
      [](ProcessGroup& group) {
        at::Tensor x = at::ones({1000});
        for (int call = 0; call < 3; ++call) group.all_reduce(x)->wait();
        if (group.rank() == 2) std::this_thread::sleep_for(seconds(6));
        group.all_reduce(x)->wait();
      },
      "shm", milliseconds(2000));
  int hangs = 0;
  for (size_t rank : {0, 1, 3}) {  // the second may see that the first has ended
    if (results[rank].exit_code != static_cast<int>(ExitCode::kHang)) continue;
    ++hangs;
    expect_end(results[rank], ExitCode::kHang, "timed out after 2000 ms; of the ranks 0, 1, 2, 3 the last to move: 2");
  }
  EXPECT_GE(hangs, 1);
}

// A job that was stopped as a whole, for longer than a rank waits for another, goes on.
TEST(ShmFailures, SuspendedJobGoesOn) {
  struct Shared {
    std::atomic<int> pids[2], is_over;
  };
  Everybodys<Shared> shared;
  testing::Listener listener;
  expect_no_failure(testing::run_processes(
      3,
      [&](int who) {
        auto& pids = shared.data->pids;
        if (who == 2) {  // the one who stops the two ranks
          while (pids[0] == 0 || pids[1] == 0) std::this_thread::sleep_for(milliseconds(10));
          std::this_thread::sleep_for(milliseconds(200));  // rank 0 is in its wait
          for (auto& pid : pids) ::kill(pid, SIGSTOP);
          std::this_thread::sleep_for(milliseconds(3500));
          shared.data->is_over = 1;
          for (auto& pid : pids) ::kill(pid, SIGCONT);
          return;
        }
        auto options = testing::options_of(who, 2, listener, milliseconds(3000));
        options.backend = "shm";
        auto mesh = connect_mesh({2, 1, 1}, options);
        pids[who] = ::getpid();
        while (who == 1 && shared.data->is_over == 0) std::this_thread::sleep_for(milliseconds(1));
        if (who == 1) std::this_thread::sleep_for(milliseconds(300));  // rank 0 looks before it
        testing::all_reduce_case(mesh->world(), at::kFloat, {100});
        mesh->world().barrier();
      },
      seconds(120)));
}

TEST(ShmFailures, MessagesThatDifferNameBothRanks) {
  for (bool receive_first : {true, false}) {
    auto results = run_on_mesh(3, [&](ProcessGroup& group) {
      if (group.rank() == 0 && receive_first) std::this_thread::sleep_for(milliseconds(200));
      if (group.rank() == 0) group.send(at::ones({100}), 2, 5)->wait();
      if (group.rank() == 2 && !receive_first) std::this_thread::sleep_for(milliseconds(200));
      if (group.rank() == 2) group.recv(at::zeros({100}, at::kDouble), 0, 5)->wait();
    });
    expect_end(results[2], ExitCode::kBug,
               "message mismatch in the group of ranks 0, 1, 2, tag 5: rank 0 sends 400 bytes of Float, rank 2 expects 800 of Double");
  }
}

// Two machines, on the second of which the ranks may not open each other's memory: its first rank says so.
TEST(ShmFailures, EachMachineSaysWhatIsWrongWithIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give its rights away";
  testing::Listener listener;
  expect_no_failure(testing::run_processes(
      4,
      [&](int rank) {
        const int lines = ::memfd_create("stderr", MFD_CLOEXEC);
        testing::require(lines >= 0 && ::dup2(lines, STDERR_FILENO) >= 0, "stderr is kept");
        if (rank >= 2) testing::require(::setresuid(65534, 65534, 65534) == 0 && ::prctl(PR_SET_DUMPABLE, 0) == 0, "rights are given away");
        auto options = testing::options_of(rank, 4, listener, milliseconds(60000));
        options.backend = "auto";
        options.machine = rank < 2 ? "a" : "b";
        options.local_rank = rank % 2;
        options.local_world_size = 2;
        auto mesh = connect_mesh({4, 1, 1}, options);
        testing::all_reduce_case(mesh->world(), at::kFloat, {100});
        mesh->world().barrier();
        char text[8192] = "";
        [[maybe_unused]] auto length = ::pread(lines, text, sizeof text - 1, 0);
        const bool said = std::string(text).find("the ranks of this machine share no memory (rank 3: cannot open") != std::string::npos;
        testing::require(said == (rank == 2), cat("rank ", rank, " said: ", text));
      },
      seconds(120)));
}

// Nothing survives a rank that was killed: what it lent can be opened by nobody, and no file is left.
TEST(ShmFailures, KilledRanksMemoryIsGone) {
  struct Shared {
    std::atomic<int> pid, num_descriptors;
    int descriptors[16];
    struct stat memory;
  };
  Everybodys<Shared> shared;
  auto left_of = [&](int pid) {  // that can still be opened
    std::string left;
    struct stat info {};
    for (int i = 0; i < shared.data->num_descriptors; ++i) {
      const std::string path = cat("/proc/", pid, "/fd/", shared.data->descriptors[i]);
      // The number may be another process's by now.
      if (::stat(path.c_str(), &info) == 0 && info.st_dev == shared.data->memory.st_dev && info.st_ino == shared.data->memory.st_ino)
        left += path + " ";
    }
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename().string();
      if (name.find("plait") != std::string::npos) left += name + " ";
    }
    return left;
  };
  auto results = run_on_mesh(3, [&](ProcessGroup& group) {
    at::Tensor x = shared_zeros(group, 300000, at::kFloat);
    group.all_reduce(x)->wait();
    if (group.rank() == 1) {
      for (int descriptor : lent_descriptors()) {
        testing::require(::fstat(descriptor, &shared.data->memory) == 0, "fstat");
        shared.data->descriptors[shared.data->num_descriptors++] = descriptor;
      }
      shared.data->pid = ::getpid();
      testing::require(left_of(::getpid()).find("/fd/") != std::string::npos, "it was there");
      ::kill(::getpid(), SIGKILL);
    }
    try {
      group.all_reduce(x)->wait();
    } catch (const Error& error) {
      testing::require(error.code() == ExitCode::kPeerLost, error.what());
    }
    std::string left = left_of(shared.data->pid);
    for (int look = 0; look < 1000 && !left.empty(); ++look) {  // it may still be on its way out
      std::this_thread::sleep_for(milliseconds(10));
      left = left_of(shared.data->pid);
    }
    testing::require(left.empty(), "left: " + left);
    throw std::runtime_error("nothing was left");
  });
  EXPECT_EQ(shared.data->num_descriptors, 1);
  for (size_t rank : {0, 2}) EXPECT_EQ(results[rank].message, "nothing was left");
  EXPECT_EQ(left_of(shared.data->pid), "");
}

}  // namespace
}  // namespace plait
