// Copies past the caches: every alignment of both ends and every rest, nothing beside them touched.
#include "plait/comm/stream_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace plait {
namespace {

TEST(StreamCopy, EveryAlignmentAndLength) {
  std::vector<unsigned char> from(1024), to(1024), want(1024);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + 1);
  for (size_t to_offset = 0; to_offset < 70; to_offset += 3)
    for (size_t from_offset = 0; from_offset < 70; from_offset += 7)
      for (size_t bytes = 0; bytes < 400; bytes += bytes < 70 ? 1 : 29) {
        std::fill(to.begin(), to.end(), 0xee);
        want = to;
        std::memcpy(want.data() + to_offset, from.data() + from_offset, bytes);
        detail::stream_copy(to.data() + to_offset, from.data() + from_offset, static_cast<int64_t>(bytes));
        ASSERT_EQ(to, want) << to_offset << " " << from_offset << " " << bytes;
      }
}

}  // namespace
}  // namespace plait
