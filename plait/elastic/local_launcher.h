// Local launcher: runs N ranks as forked children of this process on one machine, shows their output, and ends them all
// when one fails or when the launcher itself is interrupted, terminated or killed.
// Call it before any other thread exists in the process (the children are forked, not executed anew) and from the main thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plait/elastic/environment.h"

namespace plait {

struct LaunchOptions {
  int64_t num_ranks = 1;
  // Runs in the child; its result is the child's exit code. An exception ends the child with the Error's own code (others: 1).
  // The child leaves by _exit after flushing, so destructors of statics do not run.
  std::function<int(const RankEnvironment&)> body;
  int master_port = 0;                    // 127.0.0.1 port of the store, bound here; 0 = any free one
  std::string log_dir;                    // existing folder; every rank's output is appended to log_dir/rank_N.log; empty = none
  bool prefix = true;                     // lines of ranks other than 0 start with "[rank 3 (dp 0, pp 1, tp 1)] "
  std::vector<std::string> rank_labels;   // "rank 3 (dp 0, pp 1, tp 1)"; empty = "rank 3"
  std::chrono::milliseconds grace{3000};  // between SIGTERM and SIGKILL
};

// Forks the ranks and returns when all of them are gone:
//   0 when all ended with 0; the first failing rank's own code; 6 when it was killed by a signal;
//   130 / 143 / 129 when the launcher got SIGINT / SIGTERM / SIGHUP (forwarded to the ranks; those left after `grace` are killed).
// Output: rank 0 plainly (it sees a terminal when this process has one), other ranks' stdout line by line with their prefix, of their
// stderr only warnings and errors (one line each, said once) and, of the rank that failed, its last 20 lines. On a failure the last line
// printed names the first failing rank, its exit code or signal, and its last error line. A rank that ended with 6 (peer lost) is
// only called the first cause when no other rank failed by itself.
// Throws Error(kRendezvous) when master_port is taken, kUsage when log_dir cannot be written, kResource when a fork or pipe fails.
int launch_local_ranks(const LaunchOptions& options);

}  // namespace plait
