// The file is read back by a parser of its own, written from the descriptions of TFRecord and of protocol buffers' wire format.
#include "plait/train/event_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>

#include "plait/base/error.h"

namespace plait {
namespace {

// Bit by bit, as the polynomial is defined.
uint32_t slow_crc32c(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (unsigned char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      bool odd = ((crc ^ static_cast<uint32_t>(byte >> bit)) & 1) != 0;
      crc = crc >> 1 ^ (odd ? 0x82f63b78u : 0u);
    }
  return ~crc;
}
uint32_t slow_mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <class Number>
Number take(const std::string& bytes, size_t& at) {
  if (at + sizeof(Number) > bytes.size()) throw std::runtime_error("cut");
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

struct Field {
  uint64_t number = 0, wire_type = 0, integer = 0;
  std::string bytes;  // of wire types 1, 2, 5
};

std::vector<Field> fields_of(const std::string& message) {
  std::vector<Field> fields;
  size_t at = 0;
  auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      auto byte = take<uint8_t>(message, at);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    Field field;
    uint64_t key = varint();
    field.number = key >> 3;
    field.wire_type = key & 7;
    size_t length = field.wire_type == 1 ? 8 : field.wire_type == 5 ? 4 : 0;
    if (field.wire_type == 0) field.integer = varint();
    if (field.wire_type == 2) length = varint();
    if (at + length > message.size()) throw std::runtime_error("cut");
    field.bytes = message.substr(at, length);
    at += length;
    fields.push_back(field);
  }
  return fields;
}

template <class Number>
Number number_of(const Field& field) {
  size_t at = 0;
  return take<Number>(field.bytes, at);
}

struct Event {
  double wall_time = 0;
  std::optional<uint64_t> step;
  std::string version;
  std::map<std::string, float> scalars;
};

Event event_of(const std::string& message) {
  Event event;
  for (const auto& field : fields_of(message)) {
    if (field.number == 1) event.wall_time = number_of<double>(field);
    if (field.number == 2) event.step = field.integer;
    if (field.number == 3) event.version = field.bytes;
    if (field.number != 5) continue;
    for (const auto& value : fields_of(field.bytes)) {
      EXPECT_EQ(value.number, 1u);
      std::string tag;
      for (const auto& part : fields_of(value.bytes)) {
        if (part.number == 1) tag = part.bytes;
        if (part.number == 2) event.scalars[tag] = number_of<float>(part);
      }
    }
  }
  return event;
}

std::vector<Event> read_events(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  std::vector<Event> events;
  for (size_t at = 0; at < bytes.size();) {
    std::string head = bytes.substr(at, 8);
    auto length = take<uint64_t>(bytes, at);
    EXPECT_EQ(take<uint32_t>(bytes, at), slow_mask(slow_crc32c(head)));
    std::string data = bytes.substr(at, length);
    at += length;
    EXPECT_EQ(take<uint32_t>(bytes, at), slow_mask(slow_crc32c(data)));
    events.push_back(event_of(data));
  }
  return events;
}

TEST(EventFile, Crc32cOfTheStandard) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720 B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(EventFile, ReadsBack) {
  std::string pattern = (std::filesystem::temp_directory_path() / "plait-events-XXXXXX").string();
  ASSERT_TRUE(::mkdtemp(pattern.data()));
  std::string path;
  {
    EventFile file(pattern + "/deep/runs");
    path = file.path();
    EXPECT_TRUE(path.starts_with(pattern + "/deep/runs/events.out.tfevents.")) << path;
    EXPECT_EQ(read_events(path).size(), 1u);  // at once, not when the run ends
    file.write(1, {{"train/loss", 2.5}, {"train/learning_rate", 1e-3}});
    file.write(300000000000, {{"eval/loss", -1.25}});
    EXPECT_EQ(read_events(path).size(), 3u);
  }
  std::vector<Event> events = read_events(path);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_FALSE(events[0].step);
  EXPECT_GT(events[0].wall_time, 1.7e9);
  EXPECT_EQ(events[1].step, 1u);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"train/loss", 2.5f}, {"train/learning_rate", 1e-3f}}));
  EXPECT_EQ(events[2].step, 300000000000u);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"eval/loss", -1.25f}}));
  EXPECT_GE(events[2].wall_time, events[0].wall_time);
  std::ofstream(pattern + "/plain") << "a file";
  EXPECT_THROW(EventFile(pattern + "/plain"), Error);
  EXPECT_THROW(EventFile(pattern + "/plain/below"), Error);
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace plait
