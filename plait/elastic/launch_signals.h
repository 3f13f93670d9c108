// LaunchSignals: while it lives, SIGCHLD, SIGINT, SIGTERM and SIGHUP of this process arrive as readable bytes of one
// descriptor instead of interrupting it, and writing to a closed pipe is an error instead of a death. Single-threaded processes only.
#pragma once

#include <csignal>
#include <vector>

#include "plait/base/file_descriptor.h"

namespace plait {

class LaunchSignals {
 public:
  LaunchSignals();   // throws Error(kResource)
  ~LaunchSignals();  // the signals do again what they did before
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  int fd() const { return fd_.get(); }  // for poll
  std::vector<int> take();              // signals since the last call, SIGCHLD included; never waits
  void restore_in_child() const;        // after fork: mask and SIGPIPE as they were

 private:
  FileDescriptor fd_;
  sigset_t old_mask_{};
  struct sigaction old_pipe_ {};
};

}  // namespace plait
