// MeshLayout: rank <-> (dp, pp, tp) coordinate. Tensor ranks are neighbours, then pipeline, then data:
//   rank = (dp * pp_size + pp) * tp_size + tp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/base/error.h"

namespace plait {

enum class Axis { kData, kPipeline, kTensor, kWorld };

struct Coordinate {
  int64_t dp = 0, pp = 0, tp = 0;
};

struct MeshLayout {
  int64_t dp_size = 1, pp_size = 1, tp_size = 1;

  int64_t world_size() const { return dp_size * pp_size * tp_size; }
  int64_t axis_size(Axis axis) const {
    switch (axis) {
      case Axis::kData: return dp_size;
      case Axis::kPipeline: return pp_size;
      case Axis::kTensor: return tp_size;
      case Axis::kWorld: return world_size();
    }
    return 0;
  }
  int64_t rank_of(Coordinate c) const { return (c.dp * pp_size + c.pp) * tp_size + c.tp; }
  Coordinate coordinate_of(int64_t rank) const {
    PLAIT_CHECK(rank >= 0 && rank < world_size(), "rank ", rank, " of ", world_size());
    return {rank / (pp_size * tp_size), rank / tp_size % pp_size, rank % tp_size};
  }
  // Global ranks that share the group of `rank` on `axis`, in order of their coordinate on it.
  std::vector<int64_t> group_ranks(Axis axis, int64_t rank) const {
    std::vector<int64_t> ranks;
    Coordinate c = coordinate_of(rank);
    for (int64_t i = 0; i < axis_size(axis); ++i) {
      Coordinate member = c;
      if (axis == Axis::kData) member.dp = i;
      if (axis == Axis::kPipeline) member.pp = i;
      if (axis == Axis::kTensor) member.tp = i;
      ranks.push_back(axis == Axis::kWorld ? i : rank_of(member));
    }
    return ranks;
  }
};

// "dp 1, pp 0, tp 1"
inline std::string to_string(Coordinate c) { return cat("dp ", c.dp, ", pp ", c.pp, ", tp ", c.tp); }

}  // namespace plait
