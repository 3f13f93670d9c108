// TextLines: the lines of a UTF-8 file one after the other, in bounded memory. A byte order mark at the start is skipped.
// Every line is checked to be valid UTF-8 and no longer than kMaxLineBytes. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plait {

constexpr int64_t kMaxLineBytes = int64_t{64} << 20;  // also of a CSV record

class TextLines {
 public:
  // Throws Error(kUsage) naming `setting` when the file cannot be opened, Error(kData) when it holds no bytes.
  TextLines(std::string path, const std::string& setting);

  // The next line without its '\n' (a '\r' before it stays); valid until the next call. False at the end of the file.
  // Throws Error(kData) with file:line for bytes that are not UTF-8 and for lines that are too long.
  bool next(std::string_view& line);

  bool ended_by_newline() const { return ended_by_newline_; }  // the line last returned
  int64_t line_number() const { return line_number_; }         // of the line last returned, from 1
  int64_t bytes_read() const { return file_offset_; }          // of the file, up to the end of the line last returned
  int64_t file_bytes() const { return file_bytes_; }
  const std::string& path() const { return path_; }
  std::string where() const;  // "path:line"

 private:
  struct Descriptor {
    Descriptor() = default;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor();
    int value = -1;
  };

  bool refill();
  void skip_byte_order_mark();

  std::string path_;
  Descriptor descriptor_;
  std::string buffer_;
  size_t begin_ = 0;  // first byte of buffer_ not yet returned
  bool at_end_ = false, ended_by_newline_ = false;
  int64_t line_number_ = 0, file_offset_ = 0, file_bytes_ = 0;
};

// The whole file as one text: byte order mark removed, line ends \r\n turned into \n. Errors as TextLines.
std::string read_whole_text(const std::string& path, const std::string& setting);

// `line` without a '\r' at its end.
std::string_view without_carriage_return(std::string_view line);

// True when there is nothing but ASCII white space.
bool is_blank(std::string_view text);

}  // namespace plait
