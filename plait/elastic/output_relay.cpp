#include "plait/elastic/output_relay.h"

#include "plait/base/text.h"

namespace plait {

namespace {

constexpr size_t kTailLines = 20;
constexpr size_t kLongestLine = 64 << 10;  // longer ones are cut into pieces: a rank cannot fill the launcher's memory
constexpr size_t kMostSaid = 4096;

// "plait: " is how the program says what ended it.
bool is_error(std::string_view line) { return line.starts_with("error:") || line.starts_with("plait:"); }
bool is_complaint(std::string_view line) { return line.starts_with("warning:") || is_error(line); }

// What stands on the line in the end: a progress bar goes back to the line's start with \r.
std::string_view final_text(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  auto at = line.rfind('\r');
  return at == std::string_view::npos ? line : line.substr(at + 1);
}

}  // namespace

OutputRelay::OutputRelay(Options options) : options_(std::move(options)), ranks_(options_.shown.size()) {}

void OutputRelay::take(int64_t index, OutputStream stream, std::string_view bytes) {
  if (options_.shown[index][static_cast<int>(stream)] == Shown::kPlain) {
    options_.show(stream, bytes);
    auto line_end = bytes.rfind('\n');
    if (line_end != std::string_view::npos) open_shown_.clear();
    open_shown_.append(line_end == std::string_view::npos ? bytes : bytes.substr(line_end + 1));
    if (open_shown_.size() > kLongestLine) open_shown_.erase(0, open_shown_.size() - kLongestLine);
  }
  std::string& open = ranks_[index].open[static_cast<int>(stream)];
  open.append(bytes);
  size_t begin = 0, line_end;
  while ((line_end = open.find('\n', begin)) != std::string::npos) {
    whole_line(index, stream, std::string(final_text(std::string_view(open).substr(begin, line_end - begin))));
    begin = line_end + 1;
  }
  open.erase(0, begin);
  if (open.size() > kLongestLine) end(index, stream);
}

void OutputRelay::end(int64_t index, OutputStream stream) {
  std::string open = std::move(ranks_[index].open[static_cast<int>(stream)]);
  ranks_[index].open[static_cast<int>(stream)].clear();
  if (!open.empty()) whole_line(index, stream, std::string(final_text(open)));
}

void OutputRelay::whole_line(int64_t index, OutputStream stream, const std::string& line) {
  if (options_.log) options_.log(index, line + "\n");
  RankState& state = ranks_[index];
  state.tail.push_back(line);
  if (state.tail.size() > kTailLines) state.tail.pop_front();
  bool complaint = false, is_new = true;
  if (stream == OutputStream::kErr) {
    if (is_error(line) || (!line.empty() && !is_error(state.last_error))) state.last_error = line;
    complaint = is_complaint(line);
    if (complaint) {
      if (said_.size() >= kMostSaid) said_.clear();
      is_new = said_.insert(line).second;
    }
  }
  switch (options_.shown[index][static_cast<int>(stream)]) {
    case Shown::kPlain: break;  // has been
    case Shown::kLines: show_line(index, stream, line); break;
    case Shown::kComplaints:
      if (complaint && is_new) show_line(index, stream, line);
      else if (!complaint && !line.empty()) note_hidden(index);
      break;
    case Shown::kNothing: break;
  }
}

void OutputRelay::note_hidden(int64_t index) {
  if (hidden_said_ || options_.log || options_.hidden_hint.empty()) return;
  hidden_said_ = true;
  announce(cat("[", options_.label(index), "] writes lines that are not shown: ", options_.hidden_hint));
}

void OutputRelay::show_line(int64_t index, OutputStream stream, const std::string& line) {
  clear_open_line();
  const std::string label = options_.label(index);
  options_.show(stream, label.empty() ? cat(line, "\n") : cat("[", label, "] ", line, "\n"));
}

void OutputRelay::clear_open_line() {
  if (open_shown_.empty()) return;
  // A bar is drawn again by its owner; an unfinished line of text is kept and ended.
  const bool bar = options_.terminal && open_shown_.find('\r') != std::string::npos;
  options_.show(OutputStream::kErr, bar ? "\r\033[K" : "\n");
  open_shown_.clear();
}

void OutputRelay::announce(const std::string& text) {
  clear_open_line();
  options_.show(OutputStream::kErr, text.ends_with('\n') ? text : text + "\n");
}

std::vector<std::string> OutputRelay::last_lines(int64_t index) const { return {ranks_[index].tail.begin(), ranks_[index].tail.end()}; }

std::string OutputRelay::last_error(int64_t index, bool only_marked) const {
  const std::string& line = ranks_[index].last_error;
  return only_marked && !is_error(line) ? "" : line;
}

}  // namespace plait
