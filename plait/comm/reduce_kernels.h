// Element-wise reduction of one slice over the ranks of a group, in rank order: ((x0 + x1) + x2) + ...
// Sums of bf16 and fp16 are accumulated in fp32 and rounded once; every other type in itself. The same bits go to every output.
// Pure functions on raw memory: no locks, no autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace c10d {
struct ReduceOp;
}

namespace plait::detail {

enum class Reduction { kSum, kMax, kMin };

// outputs[k][0, n) = reduction over r of inputs[r][0, n). An output may be the same memory as an input. Returns false when the type
// is not one of fp64, fp32, bf16, fp16, int64, int32, int16, uint8, int8, bool (bool: sum is "or").
bool reduce_slices(at::ScalarType type, Reduction reduction, const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                   int64_t n);
bool can_reduce(at::ScalarType type);

// Throws Error(kBug) for any other; `backend` names it.
Reduction reduction_of(const c10d::ReduceOp& op, const char* backend);

// The elements of a piece that `rank` reduces where each of `size` ranks takes a part: whole cache lines; the last one takes the rest.
struct ReducedPart {
  int64_t begin, end;
};
ReducedPart part_of_piece(int64_t piece, int rank, int size);

}  // namespace plait::detail
