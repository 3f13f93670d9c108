// How n items go to parts: contiguous, in order, sizes differ by at most one, the larger pieces first.
#pragma once

#include <cstdint>

namespace plait {

struct Span {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t end() const { return begin + size; }
};

// Piece `index` of `n` items in `parts` parts. Empty pieces occur when n < parts.
constexpr Span split_evenly(int64_t n, int64_t parts, int64_t index) {
  int64_t base = n / parts, rest = n % parts;
  int64_t begin = index * base + (index < rest ? index : rest);
  return {begin, base + (index < rest ? 1 : 0)};
}

}  // namespace plait
