#include "plait/elastic/output_relay.h"

#include "plait/base/text.h"

namespace plait {

namespace {

constexpr size_t kTailLines = 20;
constexpr size_t kLongestLine = 64 << 10;  // longer ones are cut into pieces: a rank cannot fill the launcher's memory
constexpr size_t kMostSaid = 4096;

bool is_complaint(std::string_view line) { return line.starts_with("warning:") || line.starts_with("error:"); }

// What stands on the line in the end: a progress bar goes back to the line's start with \r.
std::string_view final_text(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  auto at = line.rfind('\r');
  return at == std::string_view::npos ? line : line.substr(at + 1);
}

}  // namespace

OutputRelay::OutputRelay(Options options) : options_(std::move(options)), ranks_(options_.labels.size()) {}

void OutputRelay::take(int64_t rank, OutputStream stream, std::string_view bytes) {
  if (rank == 0) {
    options_.show(stream, bytes);
    auto line_end = bytes.rfind('\n');
    if (line_end != std::string_view::npos) open_shown_.clear();
    open_shown_.append(line_end == std::string_view::npos ? bytes : bytes.substr(line_end + 1));
    if (open_shown_.size() > kLongestLine) open_shown_.erase(0, open_shown_.size() - kLongestLine);
  }
  std::string& open = ranks_[rank].open[static_cast<int>(stream)];
  open.append(bytes);
  size_t begin = 0, line_end;
  while ((line_end = open.find('\n', begin)) != std::string::npos) {
    whole_line(rank, stream, std::string(final_text(std::string_view(open).substr(begin, line_end - begin))));
    begin = line_end + 1;
  }
  open.erase(0, begin);
  if (open.size() > kLongestLine) end(rank, stream);
}

void OutputRelay::end(int64_t rank, OutputStream stream) {
  std::string open = std::move(ranks_[rank].open[static_cast<int>(stream)]);
  ranks_[rank].open[static_cast<int>(stream)].clear();
  if (!open.empty()) whole_line(rank, stream, std::string(final_text(open)));
}

void OutputRelay::whole_line(int64_t rank, OutputStream stream, std::string line) {
  if (options_.log) options_.log(rank, line + "\n");
  RankState& state = ranks_[rank];
  bool shown = rank == 0;
  if (stream == OutputStream::kErr) {
    const bool complaint = is_complaint(line);
    if (line.starts_with("error:") || (!line.empty() && !state.last_error.starts_with("error:"))) state.last_error = line;
    if (complaint) {
      if (said_.size() >= kMostSaid) said_.clear();
      const bool is_new = said_.insert(line).second;
      if (rank != 0 && is_new) show_line(rank, stream, line);
      shown = true;
    }
    state.tail.push_back({std::move(line), shown});
    if (state.tail.size() > kTailLines) state.tail.pop_front();
  } else if (rank != 0) {
    show_line(rank, stream, line);
  }
}

void OutputRelay::show_line(int64_t rank, OutputStream stream, const std::string& line) {
  clear_open_line();
  options_.show(stream, options_.prefix ? cat("[", options_.labels[rank], "] ", line, "\n") : cat(line, "\n"));
}

void OutputRelay::clear_open_line() {
  if (open_shown_.empty()) return;
  // A bar is drawn again by its owner; an unfinished line of text is kept and ended.
  const bool bar = options_.terminal && open_shown_.find('\r') != std::string::npos;
  options_.show(OutputStream::kErr, bar ? "\r\033[K" : "\n");
  open_shown_.clear();
}

void OutputRelay::show_tail(int64_t rank) {
  for (Line& line : ranks_[rank].tail) {
    if (!line.shown) show_line(rank, OutputStream::kErr, line.text);
    line.shown = true;
  }
}

void OutputRelay::announce(const std::string& line) {
  clear_open_line();
  options_.show(OutputStream::kErr, line + "\n");
}

std::string OutputRelay::last_error(int64_t rank) const { return ranks_[rank].last_error; }

}  // namespace plait
