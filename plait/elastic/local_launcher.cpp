#include "plait/elastic/local_launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "plait/elastic/launch_signals.h"
#include "plait/elastic/output_relay.h"
#include "plait/elastic/rank_process.h"

namespace plait {

namespace {

using Clock = std::chrono::steady_clock;

// How long a rank that lost a peer is not yet called the first cause: the peer's own end may be noticed a moment later.
constexpr std::chrono::milliseconds kSettle{500};

struct Listener {
  FileDescriptor fd;
  int port = 0;
};

Listener listen_on_loopback(int port) {
  Listener listener{FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), port};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof address;
  int yes = 1;
  int fd = listener.fd.get();
  if (fd < 0) throw_error(ExitCode::kResource, "no socket for the ranks to meet: ", std::strerror(errno));
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd, 1024) != 0) {
    throw_error(ExitCode::kRendezvous, "cannot listen on 127.0.0.1:", port, ": ", std::strerror(errno),
                "; master_port 0 takes any free port");
  }
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  listener.port = ntohs(address.sin_port);
  return listener;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the reader is gone or the disk is full: the ranks go on
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

class LocalLauncher {
 public:
  explicit LocalLauncher(const LaunchOptions& options)
      : options_(options), relay_({labels(options), options.prefix, ::isatty(STDERR_FILENO) == 1,
                                   [](OutputStream stream, std::string_view text) {
                                     write_all(stream == OutputStream::kOut ? STDOUT_FILENO : STDERR_FILENO, text);
                                   },
                                   log_sink(options)}) {}

  int run() {
    start_all();
    while (!all_gone()) {
      wait_for_news();
      for (int signal : signals_.take()) {
        if (signal != SIGCHLD) answer_signal(signal);
      }
      read_output();
      note_ends();
      keep_deadlines();
    }
    read_output();
    return finish();
  }

 private:
  enum class Phase { kRunning, kSettling, kStopping, kKilled };

  static std::vector<std::string> labels(const LaunchOptions& options) {
    std::vector<std::string> result = options.rank_labels;
    for (int64_t rank = static_cast<int64_t>(result.size()); rank < options.num_ranks; ++rank) result.push_back(cat("rank ", rank));
    return result;
  }

  std::function<void(int64_t, std::string_view)> log_sink(const LaunchOptions& options) {
    if (options.log_dir.empty()) return nullptr;
    for (int64_t rank = 0; rank < options.num_ranks; ++rank) {
      log_paths_.push_back((std::filesystem::path(options.log_dir) / cat("rank_", rank, ".log")).string());
      logs_.emplace_back(::open(log_paths_.back().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
      if (!logs_.back().is_open()) throw_error(ExitCode::kUsage, "cannot write ", log_paths_.back(), ": ", std::strerror(errno));
    }
    return [this](int64_t rank, std::string_view line) { write_all(logs_[static_cast<size_t>(rank)].get(), line); };
  }

  void start_all() {
    Listener listener;
    if (options_.num_ranks > 1) listener = listen_on_loopback(options_.master_port);
    for (int64_t rank = 0; rank < options_.num_ranks; ++rank) {
      RankEnvironment environment;
      environment.rank = environment.local_rank = rank;
      environment.world_size = environment.local_world_size = options_.num_ranks;
      environment.master_port = listener.port;
      environment.listen = rank == 0 && options_.num_ranks > 1;
      environment.listen_fd = environment.listen ? listener.fd.get() : -1;
      auto before_body = [&] {
        for (RankProcess& other : ranks_) other.output[0].reset(), other.output[1].reset();
        if (rank != 0) listener.fd.reset();
        logs_.clear();
        signals_.restore_in_child();
      };
      try {
        ranks_.push_back(fork_rank(environment, rank == 0, before_body, options_.body));
      } catch (const Error&) {
        kill_all();
        throw;
      }
    }
  }

  void kill_all() {
    for (const RankProcess& rank : ranks_) rank.send_signal(SIGKILL);
    while (!all_gone()) {
      for (RankProcess& rank : ranks_) rank.look();
      ::usleep(1000);
    }
  }

  bool all_gone() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.is_gone(); });
  }

  void wait_for_news() {
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
    for (const RankProcess& rank : ranks_) {
      for (const FileDescriptor& output : rank.output) {
        if (output.is_open()) watched.push_back({output.get(), POLLIN, 0});
      }
    }
    int timeout_ms = -1;
    if (deadline_) {
      auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
      timeout_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
    }
    ::poll(watched.data(), watched.size(), timeout_ms);
  }

  void read_output() {
    char bytes[1 << 16];
    for (RankProcess& rank : ranks_) {
      for (int i = 0; i < 2; ++i) {
        // A rank that writes without end must not keep the launcher from the others: some pieces a turn, the rest in the next.
        for (int piece = 0; rank.output[i].is_open() && (piece < 4 || rank.is_gone()); ++piece) {
          ssize_t n = ::read(rank.output[i].get(), bytes, sizeof bytes);
          if (n > 0) {
            relay_.take(rank.rank, static_cast<OutputStream>(i), std::string_view(bytes, static_cast<size_t>(n)));
          } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
          } else {  // end of a pipe, or EIO of a terminal without writers
            relay_.end(rank.rank, static_cast<OutputStream>(i));
            rank.output[i].reset();
          }
        }
      }
    }
  }

  void note_ends() {
    for (RankProcess& rank : ranks_) {
      if (rank.is_gone()) continue;
      rank.look();
      if (!rank.failed() || phase_ == Phase::kStopping || phase_ == Phase::kKilled) continue;
      const bool lost_peer = !rank.killed_by_signal() && rank.exit_code() == static_cast<int>(ExitCode::kPeerLost);
      if (!first_cause_ || (cause_is_lost_peer_ && !lost_peer)) {
        first_cause_ = rank.rank;
        cause_is_lost_peer_ = lost_peer;
      }
    }
    if (phase_ == Phase::kRunning && first_cause_) {
      phase_ = Phase::kSettling;
      deadline_ = Clock::now() + (cause_is_lost_peer_ ? kSettle : kSettle * 0);
    } else if (phase_ == Phase::kSettling && !cause_is_lost_peer_) {
      deadline_ = Clock::now();
    }
  }

  void keep_deadlines() {
    if (!deadline_ || Clock::now() < *deadline_) return;
    if (phase_ == Phase::kSettling) {
      stop(SIGTERM);
    } else if (phase_ == Phase::kStopping) {
      stop(SIGKILL);
    }
  }

  // Asks all ranks to end (or ends them), and gives them `grace`.
  void stop(int signal) {
    for (const RankProcess& rank : ranks_) rank.send_signal(signal);
    phase_ = signal == SIGKILL ? Phase::kKilled : Phase::kStopping;
    deadline_.reset();
    if (phase_ == Phase::kStopping) deadline_ = Clock::now() + options_.grace;
  }

  void answer_signal(int signal) {
    if (phase_ == Phase::kKilled) return;
    if (phase_ == Phase::kStopping) {
      if (got_signal_ != 0) stop(SIGKILL);  // asked twice: at once
      return;
    }
    got_signal_ = signal;
    stop(signal);
  }

  int finish() {
    // What a killed rank left unread or a grandchild holds open is not waited for.
    for (RankProcess& rank : ranks_) {
      for (int i = 0; i < 2; ++i) relay_.end(rank.rank, static_cast<OutputStream>(i));
    }
    if (got_signal_ != 0) {
      relay_.announce(cat("ended by signal ", got_signal_, " (", strsignal(got_signal_), "): all ", options_.num_ranks, " ranks are gone"));
      return 128 + got_signal_;
    }
    if (!first_cause_) return static_cast<int>(ExitCode::kOk);
    const RankProcess& failed = ranks_[static_cast<size_t>(*first_cause_)];
    relay_.show_tail(failed.rank);
    std::string why = relay_.last_error(failed.rank);
    if (why.starts_with("error: ")) why.erase(0, 7);
    std::string line = cat("error: ", labels(options_)[static_cast<size_t>(failed.rank)], " failed first, with ", failed.how_it_ended());
    if (!log_paths_.empty()) line += cat(" (", log_paths_[static_cast<size_t>(failed.rank)], ")");
    if (!why.empty()) line += cat(": ", why);
    relay_.announce(line);
    return failed.exit_code();
  }

  const LaunchOptions& options_;
  std::vector<std::string> log_paths_;
  std::vector<FileDescriptor> logs_;
  OutputRelay relay_;
  LaunchSignals signals_;
  std::vector<RankProcess> ranks_;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;
  std::optional<int64_t> first_cause_;
  bool cause_is_lost_peer_ = false;
  int got_signal_ = 0;
};

int64_t num_threads() {
  std::error_code none;
  int64_t count = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/task", none); !none && it != std::filesystem::directory_iterator(); ++it)
    ++count;
  return count;
}

}  // namespace

int launch_local_ranks(const LaunchOptions& options) {
  PLAIT_CHECK(options.num_ranks >= 1 && options.body, "ranks to launch: ", options.num_ranks);
  PLAIT_CHECK(options.rank_labels.empty() || static_cast<int64_t>(options.rank_labels.size()) == options.num_ranks,
              "labels: ", options.rank_labels.size(), " for ", options.num_ranks, " ranks");
  PLAIT_CHECK(num_threads() <= 1, "ranks are forked, but this process has ", num_threads(), " threads already");
  return LocalLauncher(options).run();
}

}  // namespace plait
