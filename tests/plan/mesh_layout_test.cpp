#include "plait/plan/mesh_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace plait {
namespace {

using Ranks = std::vector<int64_t>;

TEST(MeshLayout, TensorRanksAreNeighboursThenPipelineThenData) {
  MeshLayout layout{.dp_size = 2, .pp_size = 3, .tp_size = 2};
  EXPECT_EQ(layout.world_size(), 12);
  EXPECT_EQ(layout.rank_of({1, 2, 1}), 11);
  EXPECT_EQ(layout.rank_of({0, 1, 0}), 2);
  EXPECT_EQ(layout.group_ranks(Axis::kTensor, 4), (Ranks{4, 5}));
  EXPECT_EQ(layout.group_ranks(Axis::kPipeline, 3), (Ranks{1, 3, 5}));
  EXPECT_EQ(layout.group_ranks(Axis::kData, 8), (Ranks{2, 8}));
  EXPECT_EQ(layout.group_ranks(Axis::kWorld, 8).size(), 12u);
  EXPECT_EQ(to_string(layout.coordinate_of(9)), "dp 1, pp 1, tp 1");
}

TEST(MeshLayout, CoordinatesAndRanksAreInverse) {
  for (int64_t dp = 1; dp <= 4; ++dp)
    for (int64_t pp = 1; pp <= 4; ++pp)
      for (int64_t tp = 1; tp <= 4; ++tp) {
        MeshLayout layout{dp, pp, tp};
        for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
          Coordinate c = layout.coordinate_of(rank);
          ASSERT_TRUE(c.dp < dp && c.pp < pp && c.tp < tp);
          ASSERT_EQ(layout.rank_of(c), rank);
        }
      }
}

// On each axis the groups partition the world, and two ranks of different axes' groups share only themselves.
TEST(MeshLayout, GroupsOfAnAxisPartitionTheWorld) {
  MeshLayout layout{3, 2, 4};
  for (Axis axis : {Axis::kData, Axis::kPipeline, Axis::kTensor}) {
    std::set<Ranks> groups;
    for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
      Ranks members = layout.group_ranks(axis, rank);
      ASSERT_EQ(static_cast<int64_t>(members.size()), layout.axis_size(axis));
      ASSERT_TRUE(std::is_sorted(members.begin(), members.end()));
      ASSERT_EQ(std::count(members.begin(), members.end(), rank), 1);
      for (int64_t member : members) ASSERT_EQ(layout.group_ranks(axis, member), members);
      groups.insert(members);
    }
    ASSERT_EQ(static_cast<int64_t>(groups.size()) * layout.axis_size(axis), layout.world_size());
  }
}

TEST(MeshLayout, RankOutsideTheWorldIsABug) {
  MeshLayout layout{2, 1, 2};
  EXPECT_THROW(layout.coordinate_of(4), Error);
  EXPECT_THROW(layout.coordinate_of(-1), Error);
}

}  // namespace
}  // namespace plait
