// OutputRelay: what the user sees of the ranks. It takes the bytes that ranks wrote, makes lines of them and decides
// which are shown, where and with which prefix; log files get every line. Used by the launcher's one thread only.
// Ranks are counted from 0 on this node here: "index".
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

enum class OutputStream { kOut, kErr };

// What of a stream is shown to the user.
enum class Shown {
  kPlain,       // every byte, at once and unchanged: rank 0
  kLines,       // every line, with its prefix
  kComplaints,  // lines of kErr that are warnings or errors and were not shown before, with prefix; nothing of kOut
  kNothing,
};

class OutputRelay {
 public:
  struct Options {
    std::vector<std::array<Shown, 2>> shown;          // of each rank: kOut, kErr
    std::function<std::string(int64_t index)> label;  // "node7 3 (0,1,1)", as far as it is known by now; empty text = no prefix
    bool terminal = false;  // this process writes to a terminal: an unfinished progress bar is wiped before another rank's line
    std::function<void(OutputStream, std::string_view)> show;       // to the user
    std::function<void(int64_t index, std::string_view line)> log;  // line with its line end, to the rank's file; empty = no files
    std::string hidden_hint;  // said once, when a line is neither shown nor logged; empty = nothing is said
  };
  explicit OutputRelay(Options options);

  // Bytes as read from a rank, in order.
  void take(int64_t index, OutputStream stream, std::string_view bytes);
  // The rank wrote its last byte on this stream: an unfinished line is treated as a whole one.
  void end(int64_t index, OutputStream stream);
  // The rank's last lines of both streams, at most 20.
  std::vector<std::string> last_lines(int64_t index) const;
  // Lines of the launcher's own, on kErr.
  void announce(const std::string& text);
  // Last line of the rank's kErr that is an error or, without one and unless only errors are asked for, its last line; "" when there is none.
  std::string last_error(int64_t index, bool only_marked = false) const;

 private:
  struct RankState {
    std::string open[2];  // unfinished line of each stream
    std::deque<std::string> tail;
    std::string last_error;
  };
  void whole_line(int64_t index, OutputStream stream, const std::string& line);
  void show_line(int64_t index, OutputStream stream, const std::string& line);
  void note_hidden(int64_t index);
  void clear_open_line();

  Options options_;
  std::vector<RankState> ranks_;
  std::set<std::string> said_;  // warnings and errors shown so far
  std::string open_shown_;      // what a plainly shown rank has put on the current line of the terminal
  bool hidden_said_ = false;
};

}  // namespace plait
