#include "plait/train/event_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "plait/base/atomic_file.h"
#include "plait/base/error.h"

namespace plait {

namespace {

template <class Number>
void append_little_endian(std::string& out, Number value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  for (size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

// Wire types of protocol buffers: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void append_key(std::string& out, uint64_t field, uint64_t wire_type) { append_varint(out, field << 3 | wire_type); }
void append_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  append_key(out, field, 2);
  append_varint(out, bytes.size());
  out.append(bytes);
}

std::string event_head() {
  std::string event;
  append_key(event, 1, 1);
  append_little_endian(event, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  return event;
}

// Rotated and shifted, because a checksum of data that hold checksums is weak.
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

std::string file_name() {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "localhost");
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return cat("events.out.tfevents.", seconds, ".", host, ".", ::getpid());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
      table[i] = crc;
    }
    return table;
  }();
  uint32_t crc = 0xffffffffu;
  for (char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return crc ^ 0xffffffffu;
}

EventFile::EventFile(const std::string& folder) : path_(folder + "/" + file_name()) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw_file_error("create the folder of train.tensorboard.dir", folder, failed.value());
  file_ = std::fopen(path_.c_str(), "ae");
  if (!file_) throw_file_error("create", path_, errno);
  std::string event = event_head();
  append_bytes(event, 3, "brain.Event:2");
  write_record(event);
}

EventFile::~EventFile() { std::fclose(file_); }

void EventFile::write(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    append_bytes(value, 1, tag);
    append_key(value, 2, 5);
    append_little_endian(value, static_cast<float>(number));
    append_bytes(summary, 1, value);
  }
  std::string event = event_head();
  append_key(event, 2, 0);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 5, summary);
  write_record(event);
}

void EventFile::write_record(const std::string& event) {
  std::string record;
  append_little_endian(record, static_cast<uint64_t>(event.size()));
  append_little_endian(record, masked(crc32c(record)));
  record += event;
  append_little_endian(record, masked(crc32c(event)));
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() || std::fflush(file_) != 0)
    throw_file_error("write", path_, errno);
}

}  // namespace plait
