// The wire format below all messages: a frame is 8 bytes of length (little endian) and that many bytes. A length over the limit is
// refused before anything is allocated for it. Inside a frame stand numbers (8 bytes, little endian) and texts with their length.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace plait::rendezvous {

constexpr size_t kFrameHeaderBytes = 8;
constexpr size_t kMostFrameBytes = size_t{1} << 20;

// The peer does not keep to the protocol: its connection is closed.
class BadFrame : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Takes bytes as they come and gives whole frames. Holds at most what was fed and not yet taken.
class FrameReader {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next frame's payload, or none until more bytes come. Throws BadFrame when its length is over `most_bytes`.
  std::optional<std::string> next(size_t most_bytes = kMostFrameBytes);
  // Takes `count` bytes that stand outside of any frame; none until they are there.
  std::optional<std::string> take(size_t count);
  std::string_view buffered() const { return std::string_view(buffer_).substr(used_); }

 private:
  void drop(size_t count);

  std::string buffer_;
  size_t used_ = 0;  // bytes at the front that were taken
};

class FieldWriter {
 public:
  FieldWriter& byte(uint8_t value);
  FieldWriter& number(int64_t value);
  FieldWriter& text(std::string_view value);
  const std::string& payload() const { return payload_; }
  // Header and payload. A payload over kMostFrameBytes is Error(kResource): the caller bounds what it sends.
  std::string frame() const;

 private:
  std::string payload_;
};

// Reads what FieldWriter wrote. Every method throws BadFrame when the payload is too short or a text is longer than allowed.
class FieldReader {
 public:
  explicit FieldReader(std::string_view payload) : left_(payload) {}
  uint8_t byte();
  int64_t number();
  std::string text(size_t most_bytes);
  size_t num_left() const { return left_.size(); }
  // Throws BadFrame when something is left.
  void expect_end() const;

 private:
  std::string_view take(size_t count);
  std::string_view left_;
};

}  // namespace plait::rendezvous
