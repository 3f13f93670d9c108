// RankWatch: what a rank process shows and hears while it runs. It attaches the launcher's status page, takes SIGINT and SIGTERM as
// requests to stop (StopRequest), and ends the process when its launcher is gone. One thread; no mutable globals.
// Thread rule: constructed by the main thread before any other thread exists, so that all of them inherit the blocked signals.
#pragma once

#include <chrono>
#include <csignal>
#include <thread>

#include "plait/base/run_control.h"
#include "plait/elastic/environment.h"
#include "plait/elastic/status_page.h"

namespace plait {

class RankWatch {
 public:
  // Takes status_fd and launcher_fd of `environment` over. Throws Error(kResource).
  explicit RankWatch(const RankEnvironment& environment);
  ~RankWatch();  // signals do again what they did before
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // While the run heeds it, the first signal is a request; a second one, more than a second later, ends the process at once.
  RunControl control() { return {page_.status() ? page_.status() : &own_status_, &stop_}; }

 private:
  void watch();
  void answer(int signal);

  StatusPage page_;
  RankStatus own_status_;  // without a launcher's page
  StopRequest stop_;
  std::chrono::steady_clock::time_point first_signal_;
  FileDescriptor signals_, launcher_, end_;
  sigset_t old_mask_{};
  std::thread thread_;
};

}  // namespace plait
