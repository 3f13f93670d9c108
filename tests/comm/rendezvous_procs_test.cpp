// The meeting of real processes: what goes wrong is named to all that it concerns, with its exit code; and the store they then share.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "plait/comm/rendezvous_store.h"
#include "tests/comm/collective_cases.h"
#include "tests/comm/process_ranks.h"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

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

void expect_end(const testing::ProcessResult& result, ExitCode code, const std::string& text) {
  EXPECT_EQ(result.exit_code, static_cast<int>(code)) << "signal " << result.signal << ": " << result.message;
  EXPECT_NE(result.message.find(text), std::string::npos) << "wanted: " << text << "\ngot: " << result.message;
  EXPECT_LT(result.seconds, 20);
}

TEST(Meeting, RanksThatNeverComeAreNamed) {
  Listener listener;
  auto results = run_processes(
      2,
      [&](int rank) {
        auto options = options_of(rank, 4, listener, milliseconds(60000));
        options.rendezvous_timeout = milliseconds(1500);
        connect_mesh({4, 1, 1}, options);
      },
      seconds(60));
  for (const auto& result : results) expect_end(result, ExitCode::kRendezvous, "did not come: ranks 2, 3 of 4; here: ranks 0, 1 host ");
}

TEST(Meeting, DifferentSettingsEndTheJobOnAllRanks) {
  Listener listener;
  auto results = run_processes(
      3,
      [&](int rank) {
        auto options = options_of(rank, 3, listener, milliseconds(60000));
        options.config_text = cat("train:\n  work_dir: /run", rank, "\n  seed: ", rank == 2 ? 7 : 1, "\n");
        connect_mesh({3, 1, 1}, options);
      },
      seconds(60));
  for (const auto& result : results) expect_end(result, ExitCode::kRendezvous, "the settings differ: train.seed is 1 at rank 0 (");
}

TEST(Meeting, AnotherSecretIsRefusedAndDoesNotEndTheJob) {
  Listener listener;
  auto results = run_processes(
      2,
      [&](int rank) {
        auto options = options_of(rank, 2, listener, milliseconds(60000));
        options.rendezvous_timeout = milliseconds(2000);
        if (rank == 1) options.secret = "a guess";
        connect_mesh({2, 1, 1}, options);
      },
      seconds(60));
  expect_end(results[1], ExitCode::kAuth, "authentication refused: the secret of rank 1 (");
  expect_end(results[0], ExitCode::kRendezvous, "refused 1 times, last: authentication refused");
}

// Over IPv6, with the address in brackets; rank 0 binds for itself.
TEST(Meeting, IPv6) {
  int fd = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  socklen_t length = sizeof address;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) GTEST_SKIP() << "this machine has no IPv6";
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(fd);
  auto results = run_processes(
      2,
      [&](int rank) {
        at::set_num_threads(1);
        RendezvousOptions options;
        options.rank = options.local_rank = rank;
        options.world_size = 2;
        options.master_addr = "[::1]";
        options.master_port = ntohs(address.sin6_port);
        options.listen = rank == 0;
        auto mesh = connect_mesh({2, 1, 1}, options);
        testing::all_reduce_case(mesh->world(), at::kFloat, {8});
      },
      seconds(60));
  expect_all_well(results);
}

TEST(Meeting, BusyPortIsNamed) {
  Listener listener;
  auto results = run_processes(
      1,
      [&](int rank) {
        auto options = options_of(rank, 2, listener, milliseconds(3000));
        options.listen_fd = -1;
        connect_mesh({2, 1, 1}, options);
      },
      seconds(60));
  expect_end(results[0], ExitCode::kRendezvous, cat("port busy: 127.0.0.1:", listener.port, " is in use by another program"));
}

TEST(Meeting, NobodyThereIsNamed) {
  int port = Listener().port;  // closed again
  auto results = run_processes(
      1,
      [&](int) {
        RendezvousOptions options;
        options.rank = 1;
        options.world_size = 2;
        options.master_port = port;
        options.rendezvous_timeout = milliseconds(2000);
        connect_mesh({2, 1, 1}, options);
      },
      seconds(60));
  expect_end(results[0], ExitCode::kRendezvous, cat("found no rank 0 at 127.0.0.1:", port, " within 2000 ms"));
}

// The c10d operations, as torch's own stores answer them.
void store_operations(c10d::Store& store) {
  auto bytes = [](const std::string& text) { return std::vector<uint8_t>(text.begin(), text.end()); };
  EXPECT_FALSE(store.check({"a"}));
  store.set("a", bytes("one"));
  EXPECT_EQ(store.get("a"), bytes("one"));
  EXPECT_EQ(store.add("n", 5), 5);
  EXPECT_EQ(store.add("n", -7), -2);
  EXPECT_EQ(store.get_to_str("n"), "-2");
  EXPECT_EQ(store.compareSet("c", "", "first"), "first");
  EXPECT_EQ(store.compareSet("c", "other", "second"), "first");
  EXPECT_EQ(store.compareSet("c", "first", "second"), "second");
  EXPECT_EQ(store.compareSet("absent", "x", "y"), "x");
  store.append("a", bytes(" two"));
  EXPECT_EQ(store.get_to_str("a"), "one two");
  EXPECT_EQ(store.multiGet({"a", "c"}), (std::vector<std::vector<uint8_t>>{bytes("one two"), bytes("second")}));
  EXPECT_EQ(store.getNumKeys(), 3);
  EXPECT_TRUE(store.deleteKey("c"));
  EXPECT_FALSE(store.deleteKey("c"));
  EXPECT_THROW(store.wait({"a", "never"}, milliseconds(50)), Error);
  EXPECT_TRUE(store.clone()->check({"a"}));
  store.set("large", std::vector<uint8_t>(1000000, 7));
  EXPECT_EQ(store.get("large"), std::vector<uint8_t>(1000000, 7));
  EXPECT_THROW(store.set("too large", std::vector<uint8_t>(1 << 20, 7)), Error);
}

TEST(RendezvousStore, OperationsOfC10d) {
  Listener listener;
  auto results = run_processes(
      2,
      [&](int rank) {
        auto store = detail::join_job(options_of(rank, 2, listener, milliseconds(60000))).store;
        if (rank == 0) {
          store_operations(*store);
          if (::testing::Test::HasFailure()) throw std::runtime_error("see above");
          store->set("done", std::vector<uint8_t>{1});
        } else {
          store->wait({"done"});
          // A wait does not keep another thread of this rank from the store.
          std::thread waiting([&] { store->wait({"later"}); });
          std::this_thread::sleep_for(milliseconds(100));
          store->set("later", std::vector<uint8_t>{1});
          waiting.join();
        }
      },
      seconds(60));
  expect_all_well(results);
}

// Rank 0 has nothing more to do, but its server stays until the others are through.
TEST(RendezvousStore, TheServerOutlivesTheOthersUse) {
  Listener listener;
  auto results = run_processes(
      3,
      [&](int rank) {
        auto store = detail::join_job(options_of(rank, 3, listener, milliseconds(60000))).store;
        if (rank == 0) return;
        std::this_thread::sleep_for(milliseconds(700 * rank));
        store->set(cat(rank), std::vector<uint8_t>{1});
      },
      seconds(60));
  expect_all_well(results);
}

// A wait for a key that its writer can no longer set ends at once, with the writer's name.
TEST(RendezvousStore, ARankThatDiesEndsTheWaits) {
  Listener listener;
  auto results = run_processes(
      3,
      [&](int rank) {
        auto store = detail::join_job(options_of(rank, 3, listener, milliseconds(60000))).store;
        if (rank == 2) {
          std::this_thread::sleep_for(milliseconds(500));  // the others wait by then; one that comes later may find rank 0 gone, too
          ::kill(::getpid(), SIGKILL);
        }
        store->wait({"of rank 2"});
      },
      seconds(60));
  for (size_t rank : {0, 1}) expect_end(results[rank], ExitCode::kPeerLost, "rank 2 (host ");
}

// A launcher that serves a torch store: the last process is the launcher, the others are its ranks.
std::vector<testing::ProcessResult> under_a_foreign_store(int num_ranks, const std::function<void(int, RendezvousOptions)>& body) {
  Listener listener;
  return run_processes(
      num_ranks + 1,
      [&](int process) {
        if (process == num_ranks) {
          c10d::TCPStoreOptions options;
          options.port = static_cast<uint16_t>(listener.port);
          options.isServer = true;
          options.masterListenFd = listener.fd;
          options.waitWorkers = false;
          auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
          store->wait({"everybody is done"}, milliseconds(60000));
          return;
        }
        auto options = options_of(process, num_ranks, listener, milliseconds(60000));
        options.listen = false;
        options.listen_fd = -1;
        options.foreign_store = true;
        c10d::TCPStoreOptions own;
        own.port = static_cast<uint16_t>(listener.port);
        own.waitWorkers = false;
        c10d::TCPStore store("127.0.0.1", own);
        auto leave = [&] {
          if (store.add("done", 1) == num_ranks) store.set("everybody is done", std::vector<uint8_t>{1});
        };
        try {
          body(process, options);
        } catch (const std::exception&) {
          leave();
          throw;
        }
        leave();
      },
      seconds(120));
}

// No rank listens; a second attempt over the same store has its own keys.
TEST(ForeignStore, TwoAttemptsOverOneStore) {
  auto results = under_a_foreign_store(2, [](int, RendezvousOptions options) {
    for (const char* attempt : {"", "attempt_1"}) {
      options.key_prefix = attempt;
      auto mesh = connect_mesh({1, 1, 2}, options);
      testing::all_reduce_case(mesh->tensor(), at::kFloat, {8});
      mesh->world().barrier();
    }
  });
  expect_all_well(results);
}

TEST(ForeignStore, ContradictionsAreNamedToAll) {
  auto settings = under_a_foreign_store(3, [](int rank, RendezvousOptions options) {
    options.config_text = cat("train:\n  seed: ", rank == 1 ? 7 : 1, "\n");
    connect_mesh({3, 1, 1}, options);
  });
  auto twice = under_a_foreign_store(3, [](int rank, RendezvousOptions options) {
    if (rank == 2) std::this_thread::sleep_for(milliseconds(500));
    options.rank = rank == 2 ? 1 : rank;
    connect_mesh({3, 1, 1}, options);
  });
  auto secrets = under_a_foreign_store(3, [](int rank, RendezvousOptions options) {
    if (rank == 1) options.secret = "a guess";
    connect_mesh({3, 1, 1}, options);
  });
  for (size_t rank : {0, 1, 2}) {
    expect_end(settings[rank], ExitCode::kRendezvous, "the settings differ: train.seed is 1 at rank 0 (");
    expect_end(twice[rank], ExitCode::kRendezvous, "rank 1 came twice: host ");
    expect_end(secrets[rank], ExitCode::kAuth, "authentication refused");
  }
}

TEST(ForeignStore, MissingRanksAreNamedAlsoWhenRank0IsOneOfThem) {
  for (int absent : {0, 2}) {
    auto results = under_a_foreign_store(3, [&](int rank, RendezvousOptions options) {
      options.rendezvous_timeout = milliseconds(1500);
      if (rank != absent) connect_mesh({3, 1, 1}, options);
    });
    for (int rank : {0, 1, 2}) {
      if (rank != absent)
        expect_end(results[static_cast<size_t>(rank)], ExitCode::kRendezvous, cat("did not come: rank ", absent, " of 3"));
    }
  }
}

}  // namespace
}  // namespace plait
