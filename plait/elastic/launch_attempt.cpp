#include "plait/elastic/launch_attempt.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace plait {

namespace {

// How long a rank that lost a peer is not yet called the first cause.
constexpr std::chrono::milliseconds kSettle{500};

// 0, or why not everything was written.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;  // the reader is gone or the disk is full: the ranks go on
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

// Where the ranks meet. One node that listens elsewhere than on loopback is found there.
std::string meeting_address(const LaunchOptions& options) {
  const std::string bind = plain_address(options.bind);
  const bool everywhere = bind == "0.0.0.0" || bind == "::";
  if (options.num_nodes == 1 && options.master_addr == "127.0.0.1" && !bind.empty() && !everywhere) return bind;
  return plain_address(options.master_addr);
}

// The signal a rank says it stopped for, by its exit code; 0 = none.
int stop_signal_of(const RankProcess& rank) {
  if (!rank.is_gone() || rank.killed_by_signal()) return 0;
  return rank.exit_code() == 128 + SIGINT ? SIGINT : rank.exit_code() == 128 + SIGTERM ? SIGTERM : 0;
}

}  // namespace

LaunchAttempt::LaunchAttempt(const LaunchOptions& options, int64_t restart_count)
    : options_(options), restart_count_(restart_count), host_(short_host_name()), relay_(relay_options()) {}

OutputRelay::Options LaunchAttempt::relay_options() {
  OutputRelay::Options relay;
  const int64_t first_rank = options_.node_rank * options_.num_ranks;
  for (int64_t i = 0; i < options_.num_ranks; ++i) {
    relay.shown.push_back({Shown::kComplaints, Shown::kComplaints});
    if (first_rank + i == 0) relay.shown.back() = {Shown::kPlain, Shown::kPlain};
    if (static_cast<size_t>(i) >= options_.shown.size()) continue;
    for (int stream = 0; stream < 2; ++stream) relay.shown.back()[stream] = options_.shown[i][stream].value_or(relay.shown.back()[stream]);
  }
  relay.label = [this](int64_t index) { return options_.prefix ? prefix_text(describe(index)) : std::string(); };
  relay.terminal = ::isatty(STDERR_FILENO) == 1;
  relay.show = [](OutputStream stream, std::string_view text) {
    write_all(stream == OutputStream::kOut ? STDOUT_FILENO : STDERR_FILENO, text);
  };
  relay.hidden_hint = options_.hidden_hint;
  if (options_.log_dir.empty()) return relay;
  for (int64_t i = 0; i < options_.num_ranks; ++i) {
    log_paths_.push_back((std::filesystem::path(options_.log_dir) / cat("rank_", first_rank + i, ".log")).string());
    logs_.emplace_back(::open(log_paths_.back().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!logs_.back().is_open()) throw_error(ExitCode::kUsage, "cannot write ", log_paths_.back(), ": ", std::strerror(errno));
  }
  relay.log = [this](int64_t index, std::string_view line) { log_output(static_cast<size_t>(index), line); };
  return relay;
}

void LaunchAttempt::log_output(size_t index, std::string_view line) {
  if (!logs_[index].is_open()) return;
  const int cause = write_all(logs_[index].get(), line);
  if (cause == 0) return;
  logs_[index].reset();
  relay_.announce(cat("warning: ", log_paths_[index], ": ", std::strerror(cause), "; further lines of this rank are not logged"));
}

RankEnvironment LaunchAttempt::environment_of(int64_t index, const MasterSocket& master, int launcher_fd) const {
  RankEnvironment env;
  env.local_rank = index;
  env.local_world_size = options_.num_ranks;
  env.world_size = options_.num_ranks * options_.num_nodes;
  env.node_rank = options_.node_rank;
  env.rank = options_.node_rank * options_.num_ranks + index;
  env.launcher = "plait";
  env.master_addr = meeting_address(options_);
  env.master_port = master.fd.is_open() ? master.port : options_.master_port;
  env.listen = env.rank == 0 && env.world_size > 1;
  env.listen_fd = env.listen ? master.fd.get() : -1;
  env.bind = options_.bind;
  env.job_id = options_.job_id;
  env.secret = options_.secret;
  env.rendezvous_timeout = options_.rendezvous_timeout;
  env.restart_count = restart_count_;
  env.status_fd = pages_[static_cast<size_t>(index)].fd();
  env.launcher_fd = launcher_fd;
  return env;
}

void LaunchAttempt::start_all() {
  MasterSocket master;
  if (options_.node_rank == 0 && options_.num_ranks * options_.num_nodes > 1)
    master = bind_master_socket(options_.bind.empty() ? options_.master_addr : options_.bind, options_.master_port);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_no_pipe("the ranks");
  FileDescriptor alive(ends[0]);
  launcher_pipe_ = FileDescriptor(ends[1]);
  for (int64_t i = 0; i < options_.num_ranks; ++i) pages_.push_back(StatusPage::create());
  for (int64_t i = 0; i < options_.num_ranks; ++i) {
    const RankEnvironment environment = environment_of(i, master, alive.get());
    auto before_body = [&] {
      for (RankProcess& other : ranks_) other.output[0].reset(), other.output[1].reset();
      if (!environment.listen) master.fd.reset();
      for (int64_t other = 0; other < options_.num_ranks; ++other)
        if (other != i) pages_[static_cast<size_t>(other)] = StatusPage();
      launcher_pipe_.reset();
      logs_.clear();
      signals_.restore_in_child();
    };
    try {
      ranks_.push_back(fork_rank(environment, environment.rank == 0, before_body, options_.body));
    } catch (const Error&) {
      kill_all();
      throw;
    }
  }
  ended_before_stop_.resize(ranks_.size());
}

void LaunchAttempt::kill_all() {
  send_all(SIGKILL);
  while (!all_gone()) {
    for (RankProcess& rank : ranks_) rank.look();
    ::usleep(1000);
  }
}

bool LaunchAttempt::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.is_gone(); });
}

void LaunchAttempt::wait_for_news() {
  std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_) {
    for (const FileDescriptor& output : rank.output) {
      if (output.is_open()) watched.push_back({output.get(), POLLIN, 0});
    }
  }
  int timeout_ms = -1;
  for (const auto& moment : {deadline_, reminder_}) {
    if (!moment) continue;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(*moment - Clock::now()).count();
    int wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
    timeout_ms = timeout_ms < 0 ? wait_ms : std::min(timeout_ms, wait_ms);
  }
  ::poll(watched.data(), watched.size(), timeout_ms);
}

void LaunchAttempt::read_output() {
  char bytes[1 << 16];
  for (size_t index = 0; index < ranks_.size(); ++index) {
    RankProcess& rank = ranks_[index];
    for (int i = 0; i < 2; ++i) {
      // A rank that writes without end must not keep the launcher from the others: some pieces a turn, the rest in the next.
      for (int piece = 0; rank.output[i].is_open() && (piece < 4 || rank.is_gone()); ++piece) {
        ssize_t n = ::read(rank.output[i].get(), bytes, sizeof bytes);
        if (n > 0) {
          relay_.take(static_cast<int64_t>(index), static_cast<OutputStream>(i), std::string_view(bytes, static_cast<size_t>(n)));
        } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
          break;
        } else {  // end of a pipe, or EIO of a terminal without writers
          relay_.end(static_cast<int64_t>(index), static_cast<OutputStream>(i));
          rank.output[i].reset();
        }
      }
    }
  }
}

void LaunchAttempt::note_ends() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankProcess& rank = ranks_[i];
    if (rank.is_gone()) continue;
    rank.look();
    if (!rank.is_gone()) continue;
    ended_before_stop_[i] = phase_ == Phase::kRunning || phase_ == Phase::kSettling;
    if (!rank.failed()) continue;
    if (stop_signal_ != 0) {
      // The others wait for a rank that did not end as it was asked to.
      const bool as_asked = stop_signal_of(rank) != 0 || rank.killed_by_signal();
      if (!as_asked && phase_ == Phase::kStopping) deadline_ = std::min(*deadline_, Clock::now() + options_.grace);
    } else if (phase_ == Phase::kRunning && stop_signal_of(rank) != 0) {
      // Somebody sent the rank itself a signal; its run stopped in good order, and the other ranks do so at the same step.
      stop_signal_ = stop_signal_of(rank);
      phase_ = Phase::kStopping;
      deadline_ = Clock::now() + options_.stop_grace;
    } else if (ended_before_stop_[i]) {
      note_failure(static_cast<int64_t>(i));
    }
  }
}

void LaunchAttempt::note_failure(int64_t index) {
  const RankProcess& rank = ranks_[static_cast<size_t>(index)];
  const bool lost_peer = !rank.killed_by_signal() && rank.exit_code() == static_cast<int>(ExitCode::kPeerLost);
  if (!first_cause_ || (cause_is_lost_peer_ && !lost_peer)) {
    first_cause_ = index;
    cause_is_lost_peer_ = lost_peer;
  }
  if (phase_ == Phase::kRunning) deadline_ = Clock::now() + (cause_is_lost_peer_ ? kSettle : kSettle * 0);
  else if (!cause_is_lost_peer_) deadline_ = Clock::now();
  phase_ = Phase::kSettling;
}

void LaunchAttempt::keep_deadlines() {
  if (reminder_ && Clock::now() >= *reminder_) {
    reminder_.reset();
    if (phase_ == Phase::kStopping) send_all(SIGTERM);
  }
  if (!deadline_ || Clock::now() < *deadline_) return;
  deadline_.reset();
  if (phase_ == Phase::kSettling) {
    end_others();
  } else if (phase_ == Phase::kStopping) {
    kill_rest(cat("did not end within ", std::chrono::round<std::chrono::seconds>(Clock::now() - stop_began_).count(), " s"));
  }
}

void LaunchAttempt::send_all(int signal) {
  for (const RankProcess& rank : ranks_) rank.send_signal(signal);
}

// After a failure. A rank that trains takes the first SIGTERM as a wish to stop at the next step, which may never come: a second one follows.
void LaunchAttempt::end_others() {
  phase_ = Phase::kStopping;
  send_all(SIGTERM);
  reminder_ = Clock::now() + options_.grace / 2;
  deadline_ = Clock::now() + options_.grace;
}

void LaunchAttempt::answer_signal(int signal) {
  if (phase_ == Phase::kKilled) return;
  if (signal_is_ours_) {  // asked twice: at once
    kill_rest("had not ended at the second signal");
    return;
  }
  if (first_cause_ && phase_ == Phase::kStopping) return;  // they are ending already
  first_cause_.reset();
  stop_signal_ = signal;
  signal_is_ours_ = true;
  phase_ = Phase::kStopping;
  send_all(signal);
  stop_began_ = Clock::now();
  deadline_ = stop_began_ + options_.stop_grace;
  if (signal == SIGHUP) return;  // ends ranks at once, and nobody is there to read
  relay_.announce(cat("stopping: waiting up to ", options_.stop_grace.count() / 1000.0, " s for the ranks to finish their step (a second ",
                      signal == SIGINT ? "Ctrl-C" : "signal", " ends them now)"));
}

void LaunchAttempt::kill_rest(const std::string& why) {
  phase_ = Phase::kKilled;
  std::vector<RankEnd> left;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].look();
    if (!ranks_[i].is_gone()) left.push_back(describe(static_cast<int64_t>(i)));
  }
  send_all(SIGKILL);
  if (signal_is_ours_ && !left.empty()) relay_.announce(killed_line(left, why));
}

RankEnd LaunchAttempt::describe(int64_t index) const {
  RankEnd end;
  end.rank = options_.node_rank * options_.num_ranks + index;
  end.host = host_;
  if (options_.layout) {
    Coordinate c = options_.layout->coordinate_of(end.rank);
    end.dp = c.dp, end.pp = c.pp, end.tp = c.tp;
  }
  if (static_cast<size_t>(index) < pages_.size()) {
    const RankStatus* status = pages_[static_cast<size_t>(index)].status();
    if (end.dp < 0 && status->tp.load(std::memory_order_acquire) >= 0) end.dp = status->dp, end.pp = status->pp, end.tp = status->tp;
    const int64_t phase = status->phase;
    end.step = status->step;
    if (phase != static_cast<int64_t>(RankPhase::kStart)) end.phase = phase_name(static_cast<RankPhase>(phase));
  }
  return end;
}

// Ranks tell each other why they fail, and one that was told may be gone before the one that told it.
void LaunchAttempt::follow_blame() {
  const RankProcess& first = ranks_[static_cast<size_t>(*first_cause_)];
  const auto blamed = blamed_rank(relay_.last_error(*first_cause_));
  if (!blamed || first.killed_by_signal()) return;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankProcess& rank = ranks_[i];
    if (rank.rank == *blamed && rank.failed() && !rank.killed_by_signal() && rank.exit_code() == first.exit_code())
      first_cause_ = static_cast<int64_t>(i);
  }
}

LaunchAttempt::Outcome LaunchAttempt::finish() {
  // What a killed rank left unread or a grandchild holds open is not waited for.
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (int stream = 0; stream < 2; ++stream) relay_.end(static_cast<int64_t>(i), static_cast<OutputStream>(stream));
  }
  if (stop_signal_ != 0) {
    relay_.announce(cat(signal_is_ours_ ? "ended" : "ranks ended", " by signal ", stop_signal_, " (", strsignal(stop_signal_), "): all ",
                        options_.num_ranks, " ranks", options_.num_nodes > 1 ? " of this node" : "", " are gone"));
    return {0, stop_signal_};
  }
  if (!first_cause_) return {};
  follow_blame();
  const int code = ranks_[static_cast<size_t>(*first_cause_)].exit_code();
  const bool missed_others = code == static_cast<int>(ExitCode::kRendezvous) || code == static_cast<int>(ExitCode::kPeerLost);
  std::vector<RankEnd> others;
  RankEnd first;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankProcess& rank = ranks_[i];
    const bool is_first = static_cast<int64_t>(i) == *first_cause_;
    RankEnd end = describe(static_cast<int64_t>(i));
    end.pid = rank.pid;
    end.how = rank.how_it_ended();
    end.lost_peer = !rank.killed_by_signal() && rank.exit_code() == static_cast<int>(ExitCode::kPeerLost);
    end.stopped = !ended_before_stop_[i] && !end.lost_peer;
    if (is_first) {
      first = end;
      // A signal leaves no last words: what the rank said before is no explanation, unless it calls it an error.
      first.message = relay_.last_error(*first_cause_, rank.killed_by_signal());
    } else if (rank.failed()) others.push_back(end);
    else if (missed_others && ended_before_stop_[i]) {
      end.how = "had ended with exit code 0";
      others.push_back(end);
    }
  }
  for (const char* tag : {"error: ", "plait: "})
    if (first.message.starts_with(tag)) first.message.erase(0, std::strlen(tag));
  if (!log_paths_.empty()) first.log_path = log_paths_[static_cast<size_t>(*first_cause_)];
  first.last_lines = relay_.last_lines(*first_cause_);
  if (options_.max_restarts > 0 && restart_count_ == options_.max_restarts)
    relay_.announce(cat("error: all ", options_.max_restarts, " restarts are used up"));
  relay_.announce(root_cause_block(first, others, options_.num_nodes > 1));
  return {code, 0};
}

LaunchAttempt::Outcome LaunchAttempt::run() {
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

}  // namespace plait
