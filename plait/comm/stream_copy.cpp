#include "plait/comm/stream_copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace plait::detail {

void stream_copy(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
#if defined(__x86_64__)
  constexpr int64_t kLine = 64;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const int64_t head = std::min(bytes, (kLine - static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % kLine)) % kLine);
  std::memcpy(out, in, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    __m128i line[4];
    for (int i = 0; i < 4; ++i) line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + at) + i);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(out + at) + i, line[i]);
  }
  _mm_sfence();
  std::memcpy(out + at, in + at, static_cast<size_t>(bytes - at));
#else
  std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

}  // namespace plait::detail
