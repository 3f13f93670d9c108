// Shared memory between real processes: the same cases as in threads and over
// Gloo, messages of every size, ranks that die or stop.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <thread>

#include "plait/comm/backend_group.h"
#include "plait/comm/rendezvous_store.h"
#include "plait/comm/shm_backend.h"
#include "tests/comm/collective_cases.h"
#include "tests/comm/process_ranks.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Listener;
using testing::ProcessResult;

void expect_all_well(const std::vector<ProcessResult>& results) {
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i].exit_code, 0) << "rank " << i << " signal " << results[i].signal << ": " << results[i].message;
}

// One group of all ranks, and one of the even ones in backward order of use
// (for waiting across groups).
struct Ranks {
  int64_t rank = 0;
  ProcessGroupPtr world, pairs;  // pairs: ranks 2k and 2k + 1
};

std::vector<ProcessResult> run_ranks(int n, const std::function<void(Ranks&)>& body, milliseconds timeout = milliseconds(60000)) {
  Listener listener;
  return testing::run_processes(
      n,
      [&](int rank) {
        at::set_num_threads(1);
        c10::intrusive_ptr<c10d::Store> store = detail::join_job(testing::options_of(rank, n, listener, timeout)).store;
        auto own = std::make_shared<detail::ShmRank>(*store, rank, n, timeout);
        auto make = [&](const std::string& name, const std::vector<int64_t>& members) {
          if (members.size() == 1) return detail::make_backend_group({}, name, members, 0, cat("rank ", rank), at::kCPU);
          int64_t at = std::find(members.begin(), members.end(), rank) - members.begin();
          c10d::PrefixStore prefixed(cat(name, members.front()), store);
          auto backend = c10::make_intrusive<detail::ShmBackend>(own, prefixed, members, static_cast<int>(at));
          return detail::make_backend_group(backend, name, members, at, cat("rank ", rank), at::kCPU);
        };
        std::vector<int64_t> all, pair;
        for (int64_t r = 0; r < n; ++r) {
          all.push_back(r);
          if (r / 2 == rank / 2) pair.push_back(r);
        }
        Ranks ranks{rank, make("world", all), make("pair", pair)};
        body(ranks);
        ranks.world->barrier();
      },
      seconds(120));
}

TEST(ShmProcesses, EveryOperationTypeAndSize) {
  for (int n : {1, 2, 3})
    expect_all_well(run_ranks(n, [](Ranks& r) { testing::every_operation(*r.world, {{1}, {3, 5}, {5, 1031}, {2, 70007}}); }));
}

TEST(ShmProcesses, BackToBackAndTwoInFlight) {
  for (int n : {2, 4})
    expect_all_well(run_ranks(n, [](Ranks& r) {
      testing::back_to_back_case(*r.world, 20000);
      testing::two_in_flight_case(*r.world);
    }));
}

// Pieces of one phase and of two, one after the other without a barrier, with
// ranks that are late in turn.
TEST(ShmProcesses, MixedSizesWithLateRanks) {
  expect_all_well(run_ranks(4, [](Ranks& r) {
    for (int64_t call = 0; call < 200; ++call) {
      if (call % 4 == r.rank) std::this_thread::sleep_for(std::chrono::microseconds(300));
      int64_t n = call % 3 == 0 ? 5 : call % 3 == 1 ? 70001 : 300000;
      at::Tensor x = at::full({n}, static_cast<double>(r.rank + call));
      r.world->all_reduce(x)->wait();
      testing::require_equal(x, at::full({n}, static_cast<double>(6 + 4 * call)), cat("call ", call));
    }
  }));
}

// More operations under way than there are slots, posted before any is waited for; a sum of a sum that is not there yet.
TEST(ShmProcesses, ManyUnderWay) {
  expect_all_well(run_ranks(4, [](Ranks& r) {
    for (int64_t call = 0; call < 300; ++call) {
      if (call % 4 == r.rank) std::this_thread::sleep_for(std::chrono::microseconds(500));
      std::vector<at::Tensor> sums, gathered;
      std::vector<WorkPtr> works;
      for (int64_t i = 0; i < 9; ++i) {
        const int64_t n = i % 4 == 3 ? 30000 : 17 + i;
        sums.push_back(at::full({n}, static_cast<double>(r.rank + call + i)));
        gathered.push_back(at::zeros({4, n}));
        works.push_back(r.world->all_reduce(sums.back()));
        if (i % 3 == 0) works.push_back(r.world->all_reduce(sums.back()));
        works.push_back(r.world->all_gather(gathered.back(), at::full({1, n}, static_cast<double>(r.rank * 100 + i))));
      }
      for (size_t i = works.size(); i > 0; --i) works[(i * 5) % works.size()]->wait();
      for (auto& work : works) work->wait();
      for (int64_t i = 0; i < 9; ++i) {
        const auto at = static_cast<size_t>(i);
        const double sum = static_cast<double>(6 + 4 * (call + i)) * (i % 3 == 0 ? 4 : 1);
        testing::require_equal(sums[at], at::full_like(sums[at], sum), cat("call ", call, " sum ", i));
        for (int64_t rank = 0; rank < 4; ++rank)
          testing::require_equal(gathered[at][rank], at::full_like(gathered[at][rank], static_cast<double>(rank * 100 + i)), "gathered");
      }
    }
  }));
}

// The same bits as a sum in rank order, in fp32 for 16-bit types.
TEST(ShmProcesses, SumsInRankOrder) {
  expect_all_well(run_ranks(3, [](Ranks& r) {
    for (auto type : {at::kFloat, at::kBFloat16})
      for (int64_t n : {100, 200000}) {
        auto values = [&](int64_t rank) { return at::sin(at::arange(n, at::kDouble) * (rank + 1)).to(type); };
        at::Tensor sum = values(0).to(at::kFloat) + values(1).to(at::kFloat) + values(2).to(at::kFloat);
        at::Tensor got = values(r.rank);
        r.world->all_reduce(got)->wait();
        testing::require_equal(got, sum.to(type), "sum");
      }
  }));
}

// Messages larger than the ring, both ways at once, while the other group waits
// for a collective.
TEST(ShmProcesses, LargeMessagesAcrossGroups) {
  expect_all_well(run_ranks(4, [](Ranks& r) {
    int64_t peer = 1 - r.pairs->rank();
    for (int round = 0; round < 3; ++round) {
      at::Tensor out = at::full({1500000}, static_cast<double>(r.rank + round)), in = at::zeros({1500000});
      auto sent = r.pairs->send(out, peer, 4);
      at::Tensor one = at::ones({3});
      r.world->all_reduce(one)->wait();  // waits while the message is half way
      testing::require_equal(one, at::full({3}, 4.0), "all_reduce between");
      r.pairs->recv(in, peer, 4)->wait();
      sent->wait();
      testing::require_equal(in, at::full({1500000}, static_cast<double>(r.rank / 2 * 2 + peer + round)), "message");
    }
  }));
}

// A message whose receive is posted while its pieces arrive, and many early
// ones of several tags.
TEST(ShmProcesses, EarlyMessages) {
  expect_all_well(run_ranks(2, [](Ranks& r) {
    const int64_t large = 1200000;
    if (r.rank == 0) {
      std::vector<WorkPtr> works;
      for (int tag = 0; tag < 5; ++tag) works.push_back(r.world->send(at::full({tag == 2 ? large : 10 + tag}, tag + 0.5), 1, tag));
      for (auto& work : works) work->wait();
    } else {
      for (int i = 0; i < 3; ++i) {  // lets pieces of tag 2 come in before its receive
        std::this_thread::sleep_for(milliseconds(20));
        at::Tensor probe = at::zeros({14});
        if (i == 0) r.world->recv(at::zeros({10}), 0, 0)->wait();
      }
      for (int tag : {2, 4, 1, 3}) {
        at::Tensor in = at::zeros({tag == 2 ? large : 10 + tag});
        r.world->recv(in, 0, tag)->wait();
        testing::require_equal(in, at::full_like(in, tag + 0.5), cat("tag ", tag));
      }
    }
  }));
}

TEST(ShmProcesses, CallsThatDifferAreNamed) {
  auto results = run_ranks(2, [](Ranks& r) {
    at::Tensor x = at::ones({r.rank == 0 ? 4 : 5});
    r.world->all_reduce(x)->wait();
  });
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kBug)) << result.message;
    EXPECT_NE(result.message.find("all_reduce of 4 x Float"), std::string::npos) << result.message;
    EXPECT_NE(result.message.find("all_reduce of 5 x Float"), std::string::npos) << result.message;
  }
}

// A type that has no sum is refused by the call itself, not by a later one, and nothing of it stays.
TEST(ShmProcesses, SumOfATypeWithoutOne) {
  expect_all_well(run_ranks(2, [](Ranks& r) {
    at::Tensor x = at::ones({10}, at::kComplexFloat), part = at::ones({5}, at::kComplexFloat);
    auto refused = [](const std::function<WorkPtr()>& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.code() == ExitCode::kBug && std::string(error.what()).find("no reduction for type ComplexFloat") != std::string::npos;
      }
      return false;
    };
    testing::require(refused([&] { return r.world->all_reduce(x); }), "all_reduce");
    testing::require(refused([&] { return r.world->reduce_scatter(part, x); }), "reduce_scatter");
    r.world->barrier();
    testing::all_reduce_case(*r.world, at::kShort, {3, 5});
    testing::all_gather_case(*r.world, at::kComplexFloat, {3, 5});
  }));
}

TEST(ShmProcesses, KilledRankIsNamedAtOnce) {
  auto results = run_ranks(3, [](Ranks& r) {
    at::Tensor x = at::ones({1000});
    for (int call = 0; call < 3; ++call) r.world->all_reduce(x)->wait();
    if (r.rank == 1) ::kill(::getpid(), SIGKILL);
    r.world->all_reduce(x)->wait();
  });
  EXPECT_EQ(results[1].signal, SIGKILL);
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::kPeerLost)) << results[rank].message;
    EXPECT_NE(results[rank].message.find("all_reduce of 1000 x Float in group world (ranks 0, 1, 2) "
                                         "lost a peer: rank 1 (process"),
              std::string::npos)
        << results[rank].message;
  }
}

TEST(ShmProcesses, RankThatEndsEarlyIsNamed) {
  auto results = run_ranks(2, [](Ranks& r) {
    if (r.rank == 1) throw std::runtime_error("gave up");
    r.world->recv(at::ones({7}), 1, 3)->wait();
  });
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::kPeerLost)) << results[0].message;
  EXPECT_NE(results[0].message.find("ended without its part"), std::string::npos) << results[0].message;
}

// A rank that has no descriptor left cannot look into /proc: that says nothing of its peers.
TEST(ShmProcesses, LifeIsSeenWithoutDescriptors) {
  expect_all_well(testing::run_processes(
      1,
      [](int) {
        const pid_t own = ::getpid();
        const auto start_time = detail::process_start_time(own);
        const pid_t gone = ::fork();
        if (gone == 0) ::_exit(0);
        ::waitpid(gone, nullptr, 0);
        rlimit none{0, 0};
        if (::setrlimit(RLIMIT_NOFILE, &none) != 0) throw std::runtime_error("no limit");
        testing::require(detail::process_start_time(own) == 0, "/proc can still be read");
        testing::require(detail::process_life(own, start_time) == detail::Life::kAlive, "itself");
        testing::require(detail::process_life(gone, start_time) == detail::Life::kEnded, "one that is gone");
      },
      seconds(20)));
}

// What the user can change about it.
TEST(ShmProcesses, LimitsAreNamed) {
  expect_all_well(testing::run_processes(
      1,
      [](int) {
        auto refused = [](const std::function<void()>& call, const std::string& words) {
          try {
            call();
          } catch (const Error& error) {
            return error.code() == ExitCode::kResource && std::string(error.what()).find(words) != std::string::npos;
          }
          return false;
        };
        constexpr size_t kTooMuch = size_t{1} << 42;
        const rlimit addresses{kTooMuch, kTooMuch}, none{0, 0};
        testing::require(::setrlimit(RLIMIT_AS, &addresses) == 0, "no limit of addresses");
        testing::require(refused([] { detail::SharedMemory::create(kTooMuch); }, "(ulimit -v); train.comm.backend: gloo"), "ulimit -v");
        auto memory = detail::SharedMemory::create(100);
        testing::require(::setrlimit(RLIMIT_NOFILE, &none) == 0, "no limit of descriptors");
        testing::require(refused([] { detail::SharedMemory::create(100); }, "(ulimit -n); train.comm.backend: gloo"), "ulimit -n");
        testing::require(refused([&] { detail::SharedMemory::attach(memory.address(), 100); }, "(ulimit -n)"), "ulimit -n of a reader");
      },
      seconds(20)));
}

TEST(ShmProcesses, SilentRankIsAHang) {
  auto results = run_ranks(
      2,
      [](Ranks& r) {
        if (r.rank == 1) std::this_thread::sleep_for(seconds(6));
        at::Tensor x = at::ones({10});
        if (r.rank == 0) r.world->all_reduce(x)->wait();
      },
      milliseconds(2000));
  EXPECT_EQ(results[0].exit_code, static_cast<int>(ExitCode::kHang)) << results[0].message;
  EXPECT_NE(results[0].message.find("the last to move: 1"), std::string::npos) << results[0].message;
}

// Waiting leaves the cores to those who have work.
TEST(ShmProcesses, WaitingTakesNoTime) {
  expect_all_well(run_ranks(2, [](Ranks& r) {
    r.world->barrier();
    auto used = [] {
      rusage usage{};
      ::getrusage(RUSAGE_SELF, &usage);
      auto of = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6; };
      return of(usage.ru_utime) + of(usage.ru_stime);
    };
    const auto begin = std::chrono::steady_clock::now();
    const double before = used();
    if (r.rank == 1) std::this_thread::sleep_for(seconds(1));
    r.world->barrier();
    const double took = used() - before, waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    testing::require(waited > 0.9, cat("waited only ", waited, " s"));
    testing::require(took < waited / 2, cat(took, " s of a core in a wait of ", waited, " s"));
  }));
}

// Processes that may not look into each other's descriptors: auto takes Gloo on all of them, shm says why it cannot.
TEST(ShmProcesses, WithoutTheRightToShare) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give its rights away";
  for (const char* backend : {"auto", "shm"}) {
    Listener listener;
    auto results = testing::run_processes(
        3,
        [&](int rank) {
          testing::require(::setresuid(65534, 65534, 65534) == 0 && ::prctl(PR_SET_DUMPABLE, 0) == 0, "rights are given away");
          auto options = testing::options_of(rank, 3, listener, milliseconds(60000));
          options.backend = backend;
          auto mesh = connect_mesh({3, 1, 1}, options);
          testing::all_reduce_case(mesh->world(), at::kFloat, {100});
        },
        seconds(60));
    for (const auto& result : results) {
      EXPECT_EQ(result.exit_code, backend == std::string("auto") ? 0 : static_cast<int>(ExitCode::kUsage)) << result.message;
      if (backend == std::string("shm")) {
        EXPECT_NE(result.message.find("share no memory (rank 1: cannot open the shared memory"), std::string::npos) << result.message;
      }
    }
  }
}

TEST(ShmProcesses, EveryAxisOverConnect) {
  Listener listener;
  expect_all_well(testing::run_processes(
      8,
      [&](int rank) {
        at::set_num_threads(1);
        auto options = testing::options_of(rank, 8, listener, milliseconds(60000));
        options.backend = "shm";
        auto mesh = connect_mesh({2, 2, 2}, options);
        for (ProcessGroup* group : {&mesh->data(), &mesh->pipeline(), &mesh->tensor(), &mesh->world()}) {
          testing::all_reduce_case(*group, at::kFloat, {4, 3});
          testing::all_gather_case(*group, at::kBFloat16, {2, 3});
        }
        mesh->world().barrier();
      },
      seconds(60)));
}

TEST(ShmProcesses, NothingIsLeftInTheFileSystem) {
  auto count = [] { return std::system("exit $(ls /dev/shm | grep -c plait)"); };
  int before = count();
  expect_all_well(run_ranks(2, [&](Ranks&) { testing::require(count() == before, "a file in /dev/shm"); }));
}

}  // namespace
}  // namespace plait
