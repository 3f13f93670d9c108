// join_foreign_job: the same checks as with our own rendezvous, over the keys of a launcher's TCPStore. Each rank puts down what it says
// about itself; rank 0 reads it all and puts down the verdict that the others wait for.
#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "plait/base/error.h"
#include "plait/base/hmac.h"
#include "plait/base/log.h"
#include "plait/comm/rendezvous_store.h"
#include "plait/rendezvous/address.h"
#include "plait/rendezvous/frame.h"
#include "plait/rendezvous/gathering.h"

namespace plait::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLineTime{10000};
constexpr const char* kVerdictKey = "plait/verdict";
constexpr const char* kComersKey = "plait/comers";

std::string first_line(const std::exception& e) {
  std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

// c10d writes its own warnings with stack traces before it throws; the Error that follows says it in one message. Whoever sets torch's
// TORCH_CPP_LOG_LEVEL gets what it asks for.
void quieten_torch_log() {
  c10::initLogging();
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

c10::intrusive_ptr<c10d::Store> connect_tcp_store(const RendezvousOptions& options, Clock::time_point deadline) {
  quieten_torch_log();
  const std::string address = rendezvous::address_text(options.master_addr, options.master_port);
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(options.master_port);
  store_options.waitWorkers = false;
  for (auto start = Clock::now();;) {
    auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    store_options.timeout = std::clamp(left, milliseconds(100), kLineTime);
    try {
      c10::intrusive_ptr<c10d::Store> store =
          c10::make_intrusive<c10d::TCPStore>(rendezvous::bare_host(options.master_addr), store_options);
      store->setTimeout(options.timeout);
      if (options.key_prefix.empty()) return store;
      return c10::make_intrusive<c10d::PrefixStore>(options.key_prefix, store);
    } catch (const std::exception& e) {
      if (Clock::now() >= deadline)
        throw_error(ExitCode::kRendezvous, "rank ", options.rank, " found no store of the launcher at ", address, " within ",
                    options.rendezvous_timeout.count(), " ms (rdzv_timeout): ", first_line(e));
      log_info(cat("rank ", options.rank, " waits for the launcher's store at ", address, " (",
                   std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count(), " s): ", first_line(e)));
      std::this_thread::sleep_for(milliseconds(200));  // where it fails at once
    }
  }
}

// The gathering of one job over a store's keys.
class StoreGathering {
 public:
  StoreGathering(c10d::Store& store, const RendezvousOptions& options, Clock::time_point deadline)
      : store_(store), options_(options), deadline_(deadline), self_(hello_of(options)),
        gathering_(self_, rendezvous::address_text(options.master_addr, options.master_port), Clock::now()) {}

  void run() {
    try {
      put_down_hello();
      if (options_.rank == 0) judge();
      else wait_for_verdict();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      throw_error(ExitCode::kPeerLost, "rank ", options_.rank, " lost the launcher's store at ",
                  rendezvous::address_text(options_.master_addr, options_.master_port), ": ", first_line(e));
    }
  }

 private:
  static std::string hello_key(int64_t rank) { return cat("plait/hello/", rank); }

  std::string proof_of(const std::string& hello_bytes, int64_t rank) const {
    return options_.secret.empty() ? "" : rendezvous::proof(options_.secret, rendezvous::Prover::kClient, "", cat(rank), hello_bytes);
  }

  void put_down_hello() {
    std::string bytes = encode(self_);
    std::string entry = rendezvous::FieldWriter().text(bytes).text(proof_of(bytes, options_.rank)).payload();
    std::string found = store_.compareSet(hello_key(options_.rank), "", entry);
    if (found != entry) came_twice(found);
    store_.add(kComersKey, 1);
  }

  [[noreturn]] void came_twice(const std::string& found) {
    rendezvous::Gathering two(self_, "", Clock::now());
    two.arrive(read(found, options_.rank).first);
    auto outcome = two.arrive(self_);
    rendezvous::Failure failure = outcome.failure.value_or(
        rendezvous::Failure{ExitCode::kRendezvous, cat("rank ", options_.rank, " came twice, with other settings")});
    // While the others still wait it is the reason for all of them.
    store_.compareSet(kVerdictKey, "", verdict_text(failure));
    throw Error(failure.code, failure.text);
  }

  // Hello and proof of an entry.
  static std::pair<rendezvous::Hello, std::string> read(const std::string& entry, int64_t rank) {
    try {
      rendezvous::FieldReader fields(entry);
      std::string bytes = fields.text(rendezvous::kMostHelloBytes);
      std::string proof = fields.text(64);
      return {rendezvous::decode_hello(bytes), proof};
    } catch (const rendezvous::BadFrame& e) {
      throw_error(ExitCode::kRendezvous, "what rank ", rank, " put into the launcher's store is not a greeting of plait ",
                  rendezvous::plait_version(), " (", e.what(), "): all ranks of a job run the same plait");
    }
  }

  static std::string verdict_text(const rendezvous::Failure& failure) {
    return rendezvous::FieldWriter().number(static_cast<int64_t>(failure.code)).text(failure.text).payload();
  }

  // Rank 0: everyone's greeting, as it comes.
  void judge() {
    rendezvous::Failure failure{ExitCode::kOk, ""};
    auto next_line = Clock::now() + kLineTime;
    int64_t seen = -1;
    while (true) {
      if (int64_t comers = store_.add(kComersKey, 0); comers != seen) {
        seen = comers;
        try {
          if (auto found = look_at_comers()) failure = *found;
        } catch (const Error& e) {  // no greeting of ours
          failure = {e.code(), e.what()};
        }
      }
      auto now = Clock::now();
      if (failure.code == ExitCode::kOk && !gathering_.complete() && now >= deadline_)
        failure = gathering_.timed_out(options_.rendezvous_timeout);
      if (failure.code != ExitCode::kOk || gathering_.complete()) break;
      if (now >= next_line) {
        log_info(gathering_.waiting_text(now));
        next_line = now + kLineTime;
      }
      if (store_.check({kVerdictKey})) break;  // a rank that came twice has said so
      std::this_thread::sleep_for(milliseconds(50));
    }
    obey(store_.compareSet(kVerdictKey, "", verdict_text(failure)));
  }

  std::optional<rendezvous::Failure> look_at_comers() {
    for (int64_t rank : gathering_.missing()) {
      if (!store_.check({hello_key(rank)})) continue;
      std::string entry = store_.get_to_str(hello_key(rank));
      auto [hello, proof] = read(entry, rank);
      if (hello.has_secret != self_.has_secret ||
          !equal_in_constant_time(proof, proof_of(rendezvous::FieldReader(entry).text(entry.size()), rank)))
        return rendezvous::Failure{ExitCode::kAuth,
                                   cat("authentication refused: ", name_of(self_), " and ", name_of(hello),
                                       " do not have the same secret; PLAIT_SECRET_FILE names a file with the secret of the "
                                       "job, the same on all nodes, mode 0600, or is set nowhere")};
      auto outcome = gathering_.arrive(hello);
      if (outcome.failure) return outcome.failure;
    }
    return std::nullopt;
  }

  void wait_for_verdict() {
    // Rank 0 says at its own deadline who is missing; only when it has not come itself, the others do.
    constexpr milliseconds kGrace{3000};
    auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()) + kGrace;
    auto start = Clock::now();
    for (auto end = start + left;;) {
      auto now = Clock::now();
      auto pause = std::clamp(std::chrono::duration_cast<milliseconds>(end - now), milliseconds(1), kLineTime);
      try {
        store_.wait({kVerdictKey}, pause);
        break;
      } catch (const std::exception&) {
        store_.check({kVerdictKey});  // throws when the store itself is gone
      }
      if (Clock::now() >= end) throw_missing();
      if (!store_.check({hello_key(0)}))
        log_info(cat("rank ", options_.rank, " waits for rank 0 at the launcher's store ",
                     rendezvous::address_text(options_.master_addr, options_.master_port), " (",
                     std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count(), " s)"));
    }
    obey(store_.get_to_str(kVerdictKey));
  }

  [[noreturn]] void throw_missing() {
    for (int64_t rank = 0; rank < options_.world_size; ++rank) {
      if (store_.check({hello_key(rank)})) gathering_.arrive(read(store_.get_to_str(hello_key(rank)), rank).first);
    }
    auto failure = gathering_.timed_out(options_.rendezvous_timeout);
    throw Error(failure.code, failure.text);
  }

  static void obey(const std::string& verdict) {
    rendezvous::FieldReader fields(verdict);
    auto code = static_cast<ExitCode>(fields.number());
    if (code != ExitCode::kOk) throw Error(code, fields.text(rendezvous::kMostFrameBytes));
  }

  c10d::Store& store_;
  const RendezvousOptions& options_;
  Clock::time_point deadline_;
  rendezvous::Hello self_;
  rendezvous::Gathering gathering_;
};

// Numeric address of the interface that leads to master_addr: a connected UDP socket sends nothing but knows it.
std::string address_towards_master(const RendezvousOptions& options) {
  std::string own;
  int cause = 0;
  for (const auto& address : rendezvous::resolve(options.master_addr, options.master_port)) {
    FileDescriptor probe(::socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (probe.is_open() && ::connect(probe.get(), address.get(), address.length) == 0) {
      own = rendezvous::local_address(probe.get()).host();
      break;
    }
    cause = errno;
  }
  if (own.empty()) throw_error(ExitCode::kRendezvous, "no network path to master_addr ", options.master_addr, ": ", std::strerror(cause));
  bool several_machines = options.local_world_size > 0 && options.local_world_size < options.world_size;
  if (!several_machines || !(own.starts_with("127.") || own == "::1")) return own;
  // The machine of the store, whose own name may resolve to loopback.
  std::string outside = rendezvous::first_outside_address();
  if (outside.empty()) throw_error(ExitCode::kRendezvous, "ranks run on several machines, but this one has only a loopback address");
  return outside;
}

}  // namespace

Joined join_foreign_job(const RendezvousOptions& options) {
  auto deadline = Clock::now() + options.rendezvous_timeout;
  auto store = connect_tcp_store(options, deadline);
  warn_without_secret(options);
  StoreGathering(*store, options, deadline).run();
  return {store, address_towards_master(options)};
}

}  // namespace plait::detail
