// Local launcher: runs the ranks of one machine as forked children of this process, shows their output, and ends them all when one fails
// or when the launcher itself is interrupted, terminated or killed.
// Call it before any other thread exists in the process (the children are forked, not executed anew) and from the main thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plait/elastic/environment.h"
#include "plait/elastic/output_relay.h"
#include "plait/plan/mesh_layout.h"

namespace plait {

struct LaunchOptions {
  int64_t num_ranks = 1;  // here
  // Runs in the child; its result is the child's exit code. An exception ends the child with the Error's own code (others: 1).
  // The child leaves by _exit after flushing, so destructors of statics do not run.
  std::function<int(const RankEnvironment&)> body;

  int64_t num_nodes = 1, node_rank = 0;  // every node starts num_ranks of them
  std::string master_addr = "127.0.0.1";
  int master_port = 0;         // bound here when this is node 0; 0 = any free one (one node only)
  std::string bind;            // address to bind it on; empty = master_addr
  std::string job_id, secret;  // handed to the ranks
  std::chrono::milliseconds rendezvous_timeout{600000};

  int64_t max_restarts = 0;  // one node only: when a rank fails all start anew, at most so often

  std::string log_dir;               // existing folder; rank N's output is appended to log_dir/rank_N.log; empty = none
  std::optional<MeshLayout> layout;  // coordinates of the ranks, when the launcher knows them
  std::vector<std::array<std::optional<Shown>, 2>> shown;  // of each rank here, kOut and kErr; absent = as said below
  std::string hidden_hint;                                 // see OutputRelay
  bool prefix = true;

  std::chrono::milliseconds grace{3000};        // between the first SIGTERM and SIGKILL after a rank failed
  std::chrono::milliseconds stop_grace{60000};  // between a signal to the launcher, forwarded to the ranks, and SIGKILL
};

// Forks the ranks and returns when all of them are gone:
//   0 when all ended with 0; the first failing rank's own code; 6 when it was killed by a signal; 10 when restarts were asked for and the
//   last attempt failed too;
//   130 / 143 / 129 when the launcher got SIGINT / SIGTERM / SIGHUP, or when ranks say by their exit code that they stopped for one.
// Signals are forwarded; ranks that train stop at a step boundary, those left after `stop_grace`, or when a second signal comes, are killed.
// Output: rank 0 plainly (it sees a terminal when this process has one), of other ranks only warnings and errors (said once) with their
// prefix "[host rank (dp,pp,tp)] ". On a failure the ROOT CAUSE block (root_cause.h), whose last line names the first failing rank.
// A rank that ended with 6 (peer lost) is only called the first cause when no other rank here failed by itself.
// Each rank gets a status page, a pipe that ends with the launcher, and the secret; rank 0 the bound socket of the rendezvous.
// Throws Error(kRendezvous) when master_port is taken, kUsage when log_dir cannot be written, kResource when a fork or pipe fails.
int launch_local_ranks(const LaunchOptions& options);

// This machine's name without its domain.
std::string short_host_name();

}  // namespace plait
