#include "plait/data/text_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plait/base/error.h"
#include "plait/base/utf8.h"

namespace plait {

namespace {

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

TextLines::TextLines(std::string path, const std::string& setting) : path_(std::move(path)) {
  descriptor_.value = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  int fault = descriptor_.value < 0 || fstat(descriptor_.value, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (fault != 0) {
    ExitCode code = fault == EMFILE || fault == ENFILE ? ExitCode::kResource : ExitCode::kUsage;
    throw_error(code, setting, " ", path_, " cannot be read: ", static_cast<const char*>(std::strerror(fault)));
  }
  file_bytes_ = status.st_size;
  skip_byte_order_mark();
}

TextLines::Descriptor::~Descriptor() {
  if (value >= 0) close(value);
}

void TextLines::skip_byte_order_mark() {
  while (buffer_.size() < kByteOrderMark.size() && refill()) {}
  if (buffer_.empty()) throw_error(ExitCode::kData, path_, " is empty: a data file needs at least one row");
  if (std::string_view(buffer_).starts_with(kByteOrderMark)) {
    begin_ = kByteOrderMark.size();
    file_offset_ = static_cast<int64_t>(begin_);
  }
}

// Appends more of the file; false at its end.
bool TextLines::refill() {
  if (at_end_) return false;
  buffer_.erase(0, begin_);
  begin_ = 0;
  size_t old_size = buffer_.size();
  buffer_.resize(old_size + kReadBytes);
  ssize_t got;
  do {
    got = read(descriptor_.value, buffer_.data() + old_size, kReadBytes);
  } while (got < 0 && errno == EINTR);
  int fault = errno;
  buffer_.resize(old_size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0) throw_error(ExitCode::kResource, "cannot read ", path_, ": ", static_cast<const char*>(std::strerror(fault)));
  at_end_ = got == 0;
  return got > 0;
}

bool TextLines::next(std::string_view& line) {
  size_t searched = begin_, end;
  while ((end = buffer_.find('\n', searched)) == std::string::npos) {
    size_t pending = buffer_.size() - begin_;
    if (static_cast<int64_t>(pending) > kMaxLineBytes) break;
    if (!refill()) break;
    searched = begin_ + pending;
  }
  size_t length = (end == std::string::npos ? buffer_.size() : end) - begin_;
  if (end == std::string::npos && length == 0) return false;
  ++line_number_;
  if (static_cast<int64_t>(length) > kMaxLineBytes) {
    throw_error(ExitCode::kData, where(), ": the line is longer than ", kMaxLineBytes, " bytes; split the text into several rows");
  }
  line = std::string_view(buffer_).substr(begin_, length);
  if (auto fault = first_invalid_utf8(line)) {
    throw_error(ExitCode::kData, where(), ": byte ", *fault + 1, " of the line (byte ", file_offset_ + static_cast<int64_t>(*fault),
                " of the file, from 0) is not valid UTF-8; convert the file to UTF-8");
  }
  ended_by_newline_ = end != std::string::npos;
  size_t taken = length + (ended_by_newline_ ? 1 : 0);
  begin_ += taken;
  file_offset_ += static_cast<int64_t>(taken);
  return true;
}

std::string TextLines::where() const { return cat(path_, ":", line_number_); }

std::string read_whole_text(const std::string& path, const std::string& setting) {
  TextLines lines(path, setting);
  std::string text;
  text.reserve(static_cast<size_t>(lines.file_bytes()));
  std::string_view line;
  while (lines.next(line)) {
    if (!lines.ended_by_newline()) {
      text.append(line);
      break;
    }
    text.append(without_carriage_return(line));
    text.push_back('\n');
  }
  return text;
}

std::string_view without_carriage_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

}  // namespace plait
