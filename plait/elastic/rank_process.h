// RankProcess: one forked rank, seen from its launcher: process id, the read ends of its output, how it ended.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "plait/base/file_descriptor.h"
#include "plait/elastic/environment.h"

namespace plait {

struct RankProcess {
  int64_t rank = 0;
  pid_t pid = -1;
  FileDescriptor output[2];        // stdout, stderr; not blocking
  std::optional<int> wait_status;  // of waitpid, once it is gone

  bool is_gone() const { return wait_status.has_value(); }
  bool failed() const;
  bool killed_by_signal() const;
  int exit_code() const;             // its own; 6 when a signal killed it
  std::string how_it_ended() const;  // "exit code 4", "signal 9 (Killed)"

  // To the rank and what it may have started (its process group). Nothing when it is gone.
  void send_signal(int signal) const;
  // Takes note when it has ended; never waits.
  void look();
};

// Error(kResource) after errno said why there is no pipe for `what`; where descriptors ran out, with their limit and what raises it.
[[noreturn]] void throw_no_pipe(const char* what);

// Forks one rank. In the child: dies with the parent (PR_SET_PDEATHSIG), has its own process group, standard input from /dev/null, its output
// into this process - through a pseudo-terminal where `on_terminal` and this process's stream is a terminal, else a pipe -, the signal mask
// of before, and runs `body`, then leaves by _exit. `before_body` runs first in the child: closes what belongs to others.
// Throws Error(kResource) when no process, pipe or terminal can be had.
RankProcess fork_rank(const RankEnvironment& environment, bool on_terminal, const std::function<void()>& before_body,
                      const std::function<int(const RankEnvironment&)>& body);

}  // namespace plait
