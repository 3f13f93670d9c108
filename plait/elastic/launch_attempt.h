// LaunchAttempt: one generation of ranks, from the first fork until the last of them is gone. The launcher makes a new one a restart.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/elastic/launch_signals.h"
#include "plait/elastic/local_launcher.h"
#include "plait/elastic/master_socket.h"
#include "plait/elastic/rank_process.h"
#include "plait/elastic/root_cause.h"
#include "plait/elastic/status_page.h"

namespace plait {

class LaunchAttempt {
 public:
  struct Outcome {
    int code = 0;         // 0, or the first failing rank's
    int stop_signal = 0;  // the launcher, or a rank that ended with 128 + N, was asked to stop: not a failure
  };

  LaunchAttempt(const LaunchOptions& options, int64_t restart_count);
  LaunchAttempt(const LaunchAttempt&) = delete;
  LaunchAttempt& operator=(const LaunchAttempt&) = delete;

  // Starts the ranks and returns when all are gone; has printed the ROOT CAUSE block when one failed. Called once.
  Outcome run();

 private:
  using Clock = std::chrono::steady_clock;
  // kSettling: a rank lost a peer; the peer's own end may be noticed a moment later. kStopping: all were asked to end.
  enum class Phase { kRunning, kSettling, kStopping, kKilled };

  OutputRelay::Options relay_options();
  void log_output(size_t index, std::string_view line);
  RankEnvironment environment_of(int64_t index, const MasterSocket& master, int launcher_fd) const;
  void start_all();
  void kill_all();
  bool all_gone() const;
  void wait_for_news();
  void read_output();
  void note_ends();
  void note_failure(int64_t index);
  void keep_deadlines();
  void send_all(int signal);
  void end_others();
  void answer_signal(int signal);
  void kill_rest(const std::string& why);
  RankEnd describe(int64_t index) const;
  void follow_blame();
  Outcome finish();

  const LaunchOptions& options_;
  const int64_t restart_count_;
  const std::string host_;
  std::vector<std::string> log_paths_;
  std::vector<FileDescriptor> logs_;
  std::vector<StatusPage> pages_;
  FileDescriptor launcher_pipe_;  // write end: ends with this process
  OutputRelay relay_;
  LaunchSignals signals_;
  std::vector<RankProcess> ranks_;
  std::vector<bool> ended_before_stop_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point stop_began_;  // signal_is_ours_
  std::optional<Clock::time_point> deadline_, reminder_;
  std::optional<int64_t> first_cause_;  // index
  bool cause_is_lost_peer_ = false;
  int stop_signal_ = 0;
  bool signal_is_ours_ = false;  // the launcher got it, not a rank alone
};

}  // namespace plait
