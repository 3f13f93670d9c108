#include "plait/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace plait {

namespace {

// Length of the sequence that starts at `at`, 0 when it is not valid.
size_t sequence_length(const uint8_t* at, size_t left) {
  auto continues = [&](size_t i) { return i < left && (at[i] & 0xc0) == 0x80; };
  uint8_t lead = at[0];
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;  // continuation byte or overlong
  if (lead < 0xe0) return continues(1) ? 2 : 0;
  if (lead < 0xf0) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xe0 && at[1] < 0xa0) return 0;  // overlong
    if (lead == 0xed && at[1] > 0x9f) return 0;  // surrogate
    return 3;
  }
  if (lead > 0xf4 || !continues(1) || !continues(2) || !continues(3)) return 0;
  if (lead == 0xf0 && at[1] < 0x90) return 0;  // overlong
  if (lead == 0xf4 && at[1] > 0x8f) return 0;  // beyond U+10FFFF
  return 4;
}

}  // namespace

std::optional<size_t> first_invalid_utf8(std::string_view bytes) {
  auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t i = 0;
  while (i < bytes.size()) {
    uint64_t word;
    if (i + sizeof word <= bytes.size()) {  // eight ASCII bytes at once
      std::memcpy(&word, data + i, sizeof word);
      if ((word & 0x8080808080808080ull) == 0) {
        i += sizeof word;
        continue;
      }
    }
    size_t length = sequence_length(data + i, bytes.size() - i);
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

}  // namespace plait
