#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>

#include "plait/base/error.h"
#include "plait/comm/reduce_kernels.h"

namespace plait::detail {

Reduction reduction_of(const c10d::ReduceOp& op, const char* backend) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return Reduction::kSum;
    case c10d::ReduceOp::MAX: return Reduction::kMax;
    case c10d::ReduceOp::MIN: return Reduction::kMin;
    default: throw_error(ExitCode::kBug, "the ", backend, " backend reduces by sum, max and min only");
  }
}

ReducedPart part_of_piece(int64_t piece, int rank, int size) {
  constexpr int64_t kCacheLine = 64;  // elements, of the smallest type
  const int64_t share = (piece / size + kCacheLine - 1) / kCacheLine * kCacheLine;
  const int64_t begin = std::min(piece, share * rank);
  return {begin, rank == size - 1 ? piece : std::min(piece, begin + share)};
}

}  // namespace plait::detail
