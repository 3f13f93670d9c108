// Matrix product of float32 in AVX-512, for CPUs on which LibTorch's BLAS does not use it: C = A B (+ bias) or C += A B. Operands are packed
// into panels (A by 14 rows, B by 32 columns) that fit the caches, one tile of 14 x 32 stays in registers (Goto and van de Geijn, ACM TOMS
// 34(3) 2008). An element of C is summed in an order that depends on K only: pieces of rows or columns, in any number of threads, have the
// bits of the whole. Every product is formed, so NaN and infinity go through. Knows nothing of tensors and keeps no state.
#pragma once

#include <cstdint>

namespace plait::detail {

// Element (i, j) at data[i * row_stride + j * column_stride].
struct MatrixView {
  const float* data;
  int64_t row_stride, column_stride;
};

struct Product {
  int64_t m, n, k;  // C is m x n; any of them may be 0
  MatrixView a, b;  // m x k, k x n
  float* c;         // row-major; must not overlap a, b or bias
  int64_t c_stride;
  const float* bias = nullptr;  // n values added to every row, or none
  bool accumulate = false;      // C += instead of C =
};

// Whether this CPU can run it (AVX-512F), and whether it should: not on Intel's, where MKL has kernels in AVX-512 of its own.
bool can_multiply();
bool should_multiply();

// Floats of scratch memory that the product needs: at most about 1.2 million, for any size.
int64_t scratch_floats(const Product& p);
// scratch: aligned to 64 bytes. Only where can_multiply().
void multiply(const Product& p, float* scratch);

}  // namespace plait::detail
