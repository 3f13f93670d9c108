// Matrix products in AVX-512, for CPUs on which LibTorch's BLAS does not use it or pays much for small ones: C = A B (+ bias) or C += A B.
// float32; and bfloat16 operands with sums in float32 (the CPU's own instruction for pairs), stored as float32 or rounded once to bfloat16.
// Operands are packed into panels (A by 14 rows, B by 32 columns) that fit the caches, one tile of 14 x 32 stays in registers (Goto and van
// de Geijn, ACM TOMS 34(3) 2008). An element of C is summed in an order that depends on K only: pieces of rows or columns, in any number of
// threads, have the bits of the whole. Every product is formed, so NaN and infinity go through. Knows nothing of tensors and keeps no state.
#pragma once

#include <cstdint>

#include "plait/tensor/exp_kernels.h"

namespace plait::detail {

// Element (i, j) at data[i * row_stride + j * column_stride].
template <class T>
struct MatrixViewOf {
  const T* data;
  int64_t row_stride, column_stride;
};

template <class T>
struct ProductOf {
  int64_t m, n, k;       // C is m x n; any of them may be 0
  MatrixViewOf<T> a, b;  // m x k, k x n
  float* c;              // row-major; must not overlap a, b or bias
  int64_t c_stride;
  const float* bias = nullptr;  // n values added to every row, or none
  bool accumulate = false;      // C += instead of C =
  T* rounded = nullptr;         // bfloat16 only: C goes here, c_stride apart, and c is not used; never with accumulate
};

using MatrixView = MatrixViewOf<float>;
using Product = ProductOf<float>;
using BFloat16Product = ProductOf<BFloat16Bits>;

// Whether this CPU can run it (AVX-512F; with bfloat16 also AVX512_BF16), and whether it should: not on Intel's, where LibTorch has kernels
// in AVX-512 and AMX.
bool can_multiply();
bool should_multiply();
bool can_multiply_bfloat16();
bool should_multiply_bfloat16();

// Floats of scratch memory that the product needs: at most about 1.2 million, or 1.7 million for a rounded C of up to 16,384 sums each.
int64_t scratch_floats(const Product& p);
int64_t scratch_floats(const BFloat16Product& p);
// scratch: aligned to 64 bytes. Only where can_multiply(), can_multiply_bfloat16().
void multiply(const Product& p, float* scratch);
void multiply(const BFloat16Product& p, float* scratch);

}  // namespace plait::detail
