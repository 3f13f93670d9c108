// OutputRelay: what the user sees of the ranks. It takes the bytes that ranks wrote, makes lines of them and decides
// which are shown, where and with which prefix; log files get every line. Used by the launcher's one thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

enum class OutputStream { kOut, kErr };

class OutputRelay {
 public:
  struct Options {
    std::vector<std::string> labels;  // one a rank: "rank 3 (dp 0, pp 1, tp 1)"
    bool prefix = true;
    bool terminal = false;  // this process writes to a terminal: an unfinished progress bar is wiped before another rank's line
    std::function<void(OutputStream, std::string_view)> show;      // to the user
    std::function<void(int64_t rank, std::string_view line)> log;  // line with its line end, to the rank's file; empty = no files
  };
  explicit OutputRelay(Options options);

  // Bytes as read from a rank, in order. Rank 0's go to the user at once and unchanged; of other ranks whole lines of kOut, and those lines
  // of kErr that start with "warning:" or "error:" and were not shown before.
  void take(int64_t rank, OutputStream stream, std::string_view bytes);
  // The rank wrote its last byte on this stream: an unfinished line is treated as a whole one.
  void end(int64_t rank, OutputStream stream);
  // Shows the last kErr lines (at most 20) of the rank that failed, those not shown yet.
  void show_tail(int64_t rank);
  // A line of the launcher's own, on kErr.
  void announce(const std::string& line);
  // Last line of the rank's kErr that starts with "error:" or, without one, its last line; "" when it wrote none.
  std::string last_error(int64_t rank) const;

 private:
  struct Line {
    std::string text;
    bool shown = false;
  };
  struct RankState {
    std::string open[2];  // unfinished line of each stream
    std::deque<Line> tail;
    std::string last_error;
  };
  void whole_line(int64_t rank, OutputStream stream, std::string line);
  void show_line(int64_t rank, OutputStream stream, const std::string& line);
  void clear_open_line();

  Options options_;
  std::vector<RankState> ranks_;
  std::set<std::string> said_;  // warnings and errors shown so far
  std::string open_shown_;      // what rank 0 has put on the current line of the terminal
};

}  // namespace plait
