#include "plait/plan/partition.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(SplitEvenly, PiecesAreDisjointInOrderAndCoverAll) {
  for (int64_t n = 0; n <= 130; ++n) {
    for (int64_t parts = 1; parts <= 16; ++parts) {
      int64_t next = 0;
      for (int64_t i = 0; i < parts; ++i) {
        Span piece = split_evenly(n, parts, i);
        ASSERT_EQ(piece.begin, next) << n << " in " << parts << ", piece " << i;
        // Empty pieces only when there are fewer items than parts, and then at the end.
        ASSERT_EQ(piece.size == 0, i >= n) << n << " in " << parts << ", piece " << i;
        ASSERT_LE(piece.size, split_evenly(n, parts, 0).size);
        ASSERT_LE(split_evenly(n, parts, 0).size - piece.size, 1);
        next = piece.end();
      }
      ASSERT_EQ(next, n) << n << " in " << parts;
    }
  }
}

TEST(SplitEvenly, LargerPiecesFirst) {
  EXPECT_EQ(split_evenly(61, 4, 0).size, 16);
  EXPECT_EQ(split_evenly(61, 4, 1).begin, 16);
  EXPECT_EQ(split_evenly(61, 4, 1).size, 15);
  EXPECT_EQ(split_evenly(61, 4, 3).end(), 61);
}

}  // namespace
}  // namespace plait
