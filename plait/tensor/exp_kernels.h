// Loops around one exponential: gelu in its tanh form, gated silu, and the two passes of a softmax over rows. One pass over memory each,
// where separate operators take two to seven. Exponential: 2^n times a polynomial of degree 5 (Cephes expf), in fp32, error below 2 units in the last
// place, arguments kept within [-87, 88]; NaN stays NaN. A value does not depend on its place; with AVX-512 (fused multiply-adds) it may differ
// from other processors' in the last bits.
#pragma once

#include <cstdint>

namespace plait::detail {

// A bfloat16 as it lies in memory; computed in fp32, rounded to the nearest even.
struct BFloat16Bits {
  uint16_t bits;
};
// An IEEE half, likewise.
struct Float16Bits {
  uint16_t bits;
};

// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
void gelu_tanh(const float* x, float* y, int64_t n);
void gelu_tanh_backward(const float* dy, const float* x, float* dx, int64_t n);
void gelu_tanh(const BFloat16Bits* x, BFloat16Bits* y, int64_t n);
void gelu_tanh_backward(const BFloat16Bits* dy, const BFloat16Bits* x, BFloat16Bits* dx, int64_t n);

// x: rows of gate | up, `width` values each. y [rows, width] = silu(gate) * up. dx as x.
void gated_silu(const float* x, float* y, int64_t rows, int64_t width);
void gated_silu_backward(const float* dy, const float* x, float* dx, int64_t rows, int64_t width);
void gated_silu(const BFloat16Bits* x, BFloat16Bits* y, int64_t rows, int64_t width);
void gated_silu_backward(const BFloat16Bits* dy, const BFloat16Bits* x, BFloat16Bits* dx, int64_t rows, int64_t width);

// top[row] = largest of the row; a NaN may get lost here and shows in row_exponentials. width >= 1.
void row_largest(const float* x, float* top, int64_t rows, int64_t width);
// y = exp(x - top[row]), sums[row] = sum of the row of y. y may be x.
void row_exponentials(const float* x, const float* top, float* y, float* sums, int64_t rows, int64_t width);

}  // namespace plait::detail
