// The ROOT CAUSE block: what is printed last when a rank failed. Text from facts; nothing here looks at processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plait {

// How one rank ended and where it was.
struct RankEnd {
  int64_t rank = 0;
  std::string host;
  pid_t pid = -1;
  int64_t dp = -1, pp = -1, tp = -1;  // -1: the rank never said its coordinate
  std::string phase;                  // "training"; empty: the rank never said
  int64_t step = 0;                   // 0: before the first
  std::string how;                    // "exit code 4", "signal 9 (Killed)"
  bool lost_peer = false;             // ended with 6: some other rank failed before
  bool stopped = false;               // by its launcher, because of the first
  std::string message;                // its error line without "error: "; may be empty
  std::string log_path;               // may be empty
  std::vector<std::string> last_lines;
};

// "rank 3 (dp 0, pp 1, tp 1)", "rank 3" without a coordinate.
std::string rank_text(const RankEnd& end);

// "node7 3 (0,1,1)", "node7 3": what stands in brackets before a line of that rank.
std::string prefix_text(const RankEnd& end);

// Lines with their ends. `first`: the rank that failed first; `others`: all others that did not end well. The last line is
// "error: rank 3 (dp 0, pp 1, tp 1) failed first, with exit code 4 (LOG): MESSAGE". `several_nodes`: other launchers have ranks of this job,
// so that a rank that lost a peer points to them.
std::string root_cause_block(const RankEnd& first, const std::vector<RankEnd>& others, bool several_nodes);

// The other rank that a message says failed first: "rank 0 failed while exporting the model: ..." -> 0.
std::optional<int64_t> blamed_rank(const std::string& message);

// "killed, as they did not end within 60 s: rank 3 (dp 0, pp 1, tp 1) in training, step 12, rank 5 in loading"
std::string killed_line(const std::vector<RankEnd>& ranks, const std::string& why);

// "0-2, 5"
std::string rank_list(std::vector<int64_t> ranks);

}  // namespace plait
