#include "plait/rendezvous/frame.h"

#include "plait/base/error.h"

namespace plait::rendezvous {

namespace {

void append_u64(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t u64_at(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[static_cast<size_t>(i)])} << (8 * i);
  return value;
}

}  // namespace

std::optional<std::string> FrameReader::next(size_t most_bytes) {
  if (buffered().size() < kFrameHeaderBytes) return std::nullopt;
  uint64_t length = u64_at(buffered());
  if (length > most_bytes) throw BadFrame(cat("a frame of ", length, " bytes; at most ", most_bytes, " are allowed"));
  if (buffered().size() < kFrameHeaderBytes + length) return std::nullopt;
  std::string payload(buffered().substr(kFrameHeaderBytes, length));
  drop(kFrameHeaderBytes + length);
  return payload;
}

std::optional<std::string> FrameReader::take(size_t count) {
  if (buffered().size() < count) return std::nullopt;
  std::string bytes(buffered().substr(0, count));
  drop(count);
  return bytes;
}

void FrameReader::drop(size_t count) {
  used_ += count;
  // Moved to the front only when half is used up, so that many small frames do not cost a copy each.
  if (2 * used_ < buffer_.size()) return;
  buffer_.erase(0, used_);
  used_ = 0;
}

FieldWriter& FieldWriter::byte(uint8_t value) {
  payload_.push_back(static_cast<char>(value));
  return *this;
}

FieldWriter& FieldWriter::number(int64_t value) {
  append_u64(payload_, static_cast<uint64_t>(value));
  return *this;
}

FieldWriter& FieldWriter::text(std::string_view value) {
  append_u64(payload_, value.size());
  payload_.append(value);
  return *this;
}

std::string FieldWriter::frame() const {
  if (payload_.size() > kMostFrameBytes)
    throw_error(ExitCode::kResource, "a message of ", payload_.size(), " bytes for the rendezvous; at most ", kMostFrameBytes,
                " are allowed");
  std::string out;
  out.reserve(kFrameHeaderBytes + payload_.size());
  append_u64(out, payload_.size());
  return out + payload_;
}

std::string_view FieldReader::take(size_t count) {
  if (count > left_.size()) throw BadFrame(cat("a frame ends early: ", count, " bytes wanted, ", left_.size(), " left"));
  std::string_view bytes = left_.substr(0, count);
  left_.remove_prefix(count);
  return bytes;
}

uint8_t FieldReader::byte() { return static_cast<uint8_t>(take(1)[0]); }

int64_t FieldReader::number() { return static_cast<int64_t>(u64_at(take(8))); }

std::string FieldReader::text(size_t most_bytes) {
  uint64_t length = u64_at(take(8));
  if (length > most_bytes) throw BadFrame(cat("a text of ", length, " bytes; at most ", most_bytes, " are allowed"));
  return std::string(take(length));
}

void FieldReader::expect_end() const {
  if (!left_.empty()) throw BadFrame(cat(left_.size(), " bytes too many in a frame"));
}

}  // namespace plait::rendezvous
