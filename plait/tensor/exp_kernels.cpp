#include "plait/tensor/exp_kernels.h"

#include <bit>

#include "plait/tensor/avx512_lanes.h"
#include "plait/tensor/vectorize.h"

namespace plait::detail {
namespace {

PLAIT_KERNEL float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the low bits.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
}

PLAIT_KERNEL float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }

PLAIT_KERNEL float load(float x) { return x; }
PLAIT_KERNEL float load(BFloat16Bits x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
PLAIT_KERNEL void store(float* to, float x) { *to = x; }
PLAIT_KERNEL void store(BFloat16Bits* to, float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to->bits = static_cast<uint16_t>(x != x ? 0x7fc0u : rounded);  // rounding up would turn some NaN into infinity
}

constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

template <class T>
PLAIT_KERNEL void gelu_tanh_loop(const T* __restrict x, T* __restrict y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float v = load(x[i]);
    store(y + i, v * logistic(kTwoRootTwoOverPi * v * (1.0f + kCubic * v * v)));  // (1 + tanh u) / 2 = logistic(2 u)
  }
}

template <class T>
PLAIT_KERNEL void gelu_tanh_backward_loop(const T* __restrict dy, const T* __restrict x, T* __restrict dx, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float v = load(x[i]), square = v * v;
    const float e = exponential(-(kTwoRootTwoOverPi * v * (1.0f + kCubic * square)));
    const float s = 1.0f / (1.0f + e), rest = e * s;  // rest = 1 - s without its rounding
    store(dx + i, load(dy[i]) * (s + v * s * rest * (kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * square))));
  }
}

template <class T>
PLAIT_KERNEL void gated_silu_row(const T* __restrict gate, const T* __restrict up, T* __restrict y, int64_t width) {
#pragma GCC ivdep
  for (int64_t j = 0; j < width; ++j) {
    const float g = load(gate[j]);
    store(y + j, g * logistic(g) * load(up[j]));
  }
}

template <class T>
PLAIT_KERNEL void gated_silu_backward_row(const T* __restrict dy, const T* __restrict gate, const T* __restrict up, T* __restrict d_gate,
                                          T* __restrict d_up, int64_t width) {
#pragma GCC ivdep
  for (int64_t j = 0; j < width; ++j) {
    const float g = load(gate[j]), d = load(dy[j]), e = exponential(-g), s = 1.0f / (1.0f + e);
    store(d_up + j, d * (g * s));
    store(d_gate + j, d * load(up[j]) * (s * (1.0f + g * (e * s))));
  }
}

#if defined(__x86_64__)
template <class T>
PLAIT_AVX512 void gelu_tanh_lanes(const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kAvx512Lanes) {
    const __mmask16 mask = lanes_left(n - i);
    const __m512 v = load_lanes(x + i, mask), square = _mm512_mul_ps(v, v), scaled = _mm512_mul_ps(v, _mm512_set1_ps(kTwoRootTwoOverPi));
    const __m512 u = _mm512_mul_ps(scaled, _mm512_fmadd_ps(square, _mm512_set1_ps(kCubic), _mm512_set1_ps(1.0f)));
    store_lanes(y + i, _mm512_mul_ps(v, logistics(u)), mask);
  }
}

template <class T>
PLAIT_AVX512 void gelu_tanh_backward_lanes(const T* dy, const T* x, T* dx, int64_t n) {
  const __m512 one = _mm512_set1_ps(1.0f), root = _mm512_set1_ps(kTwoRootTwoOverPi);
  for (int64_t i = 0; i < n; i += kAvx512Lanes) {
    const __mmask16 mask = lanes_left(n - i);
    const __m512 v = load_lanes(x + i, mask), square = _mm512_mul_ps(v, v);
    const __m512 u = _mm512_mul_ps(_mm512_mul_ps(v, root), _mm512_fmadd_ps(square, _mm512_set1_ps(kCubic), one));
    const __m512 e = exponentials(_mm512_sub_ps(_mm512_setzero_ps(), u));
    const __m512 s = _mm512_div_ps(one, _mm512_add_ps(one, e)), rest = _mm512_mul_ps(e, s);  // rest = 1 - s without its rounding
    const __m512 du = _mm512_mul_ps(root, _mm512_fmadd_ps(square, _mm512_set1_ps(3.0f * kCubic), one));
    const __m512 slope = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_mul_ps(v, s), rest), du, s);
    store_lanes(dx + i, _mm512_mul_ps(load_lanes(dy + i, mask), slope), mask);
  }
}

template <class T>
PLAIT_AVX512 void gated_silu_lanes(const T* gate, const T* up, T* y, int64_t width) {
  for (int64_t j = 0; j < width; j += kAvx512Lanes) {
    const __mmask16 mask = lanes_left(width - j);
    const __m512 g = load_lanes(gate + j, mask);
    store_lanes(y + j, _mm512_mul_ps(_mm512_mul_ps(g, logistics(g)), load_lanes(up + j, mask)), mask);
  }
}

template <class T>
PLAIT_AVX512 void gated_silu_backward_lanes(const T* dy, const T* gate, const T* up, T* d_gate, T* d_up, int64_t width) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t j = 0; j < width; j += kAvx512Lanes) {
    const __mmask16 mask = lanes_left(width - j);
    const __m512 g = load_lanes(gate + j, mask), d = load_lanes(dy + j, mask);
    const __m512 e = exponentials(_mm512_sub_ps(_mm512_setzero_ps(), g)), s = _mm512_div_ps(one, _mm512_add_ps(one, e));
    store_lanes(d_up + j, _mm512_mul_ps(d, _mm512_mul_ps(g, s)), mask);
    const __m512 slope = _mm512_mul_ps(s, _mm512_fmadd_ps(g, _mm512_mul_ps(e, s), one));
    store_lanes(d_gate + j, _mm512_mul_ps(_mm512_mul_ps(d, load_lanes(up + j, mask)), slope), mask);
  }
}

PLAIT_AVX512 float exponential_lanes(const float* x, float top, float* y, int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += kAvx512Lanes) {
    const __mmask16 mask = lanes_left(n - i);
    const __m512 e = exponentials(_mm512_sub_ps(load_lanes(x + i, mask), _mm512_set1_ps(top)));
    store_lanes(y + i, e, mask);
    sum = _mm512_mask_add_ps(sum, mask, sum, e);
  }
  return _mm512_reduce_add_ps(sum);
}
#endif

template <class T>
void gelu_tanh_of(const T* x, T* y, int64_t n) {
#if defined(__x86_64__)
  if (avx512_available()) return gelu_tanh_lanes(x, y, n);
#endif
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA { gelu_tanh_loop(x, y, n); });
}
template <class T>
void gelu_tanh_backward_of(const T* dy, const T* x, T* dx, int64_t n) {
#if defined(__x86_64__)
  if (avx512_available()) return gelu_tanh_backward_lanes(dy, x, dx, n);
#endif
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA { gelu_tanh_backward_loop(dy, x, dx, n); });
}
template <class T>
void gated_silu_of(const T* x, T* y, int64_t rows, int64_t width) {
#if defined(__x86_64__)
  if (avx512_available()) {
    for (int64_t t = 0; t < rows; ++t) gated_silu_lanes(x + 2 * t * width, x + (2 * t + 1) * width, y + t * width, width);
    return;
  }
#endif
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA {
    for (int64_t t = 0; t < rows; ++t) gated_silu_row(x + 2 * t * width, x + (2 * t + 1) * width, y + t * width, width);
  });
}
template <class T>
void gated_silu_backward_of(const T* dy, const T* x, T* dx, int64_t rows, int64_t width) {
#if defined(__x86_64__)
  if (avx512_available()) {
    for (int64_t t = 0; t < rows; ++t) {
      const int64_t gate = 2 * t * width, up = gate + width;
      gated_silu_backward_lanes(dy + t * width, x + gate, x + up, dx + gate, dx + up, width);
    }
    return;
  }
#endif
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA {
    for (int64_t t = 0; t < rows; ++t) {
      const int64_t gate = 2 * t * width, up = gate + width;
      gated_silu_backward_row(dy + t * width, x + gate, x + up, dx + gate, dx + up, width);
    }
  });
}

constexpr int64_t kLanes = 16;

PLAIT_KERNEL float largest_loop(const float* x, int64_t n) {
  float lanes[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  float top = lanes[0];
  for (int64_t j = 1; j < kLanes; ++j) top = lanes[j] > top ? lanes[j] : top;
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// In-place use is the reason that nothing here is __restrict: each value is read before it is written, and no other is touched.
PLAIT_KERNEL float exponential_loop(const float* x, float top, float* y, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    float values[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) values[j] = exponential(x[i + j] - top);
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += values[j];
    for (int64_t j = 0; j < kLanes; ++j) y[i + j] = values[j];
  }
  float sum = 0.0f;
  for (int64_t j = 0; j < kLanes; ++j) sum += lanes[j];
  for (; i < n; ++i) {
    const float value = exponential(x[i] - top);
    sum += value;
    y[i] = value;
  }
  return sum;
}

constexpr int64_t kSumBlock = 4096;  // values summed in fp32 before fp64 takes over

// block(x, top, y, n) fills a block of y and returns its sum.
template <class Block>
PLAIT_KERNEL void sum_rows(const float* x, const float* top, float* y, float* sums, int64_t rows, int64_t width, const Block& block) {
  for (int64_t t = 0; t < rows; ++t) {
    double sum = 0.0;
    for (int64_t begin = 0; begin < width; begin += kSumBlock) {
      const int64_t at = t * width + begin, size = width - begin < kSumBlock ? width - begin : kSumBlock;
      sum += static_cast<double>(block(x + at, top[t], y + at, size));
    }
    sums[t] = static_cast<float>(sum);
  }
}

}  // namespace

void gelu_tanh(const float* x, float* y, int64_t n) { gelu_tanh_of(x, y, n); }
void gelu_tanh(const BFloat16Bits* x, BFloat16Bits* y, int64_t n) { gelu_tanh_of(x, y, n); }
void gelu_tanh_backward(const float* dy, const float* x, float* dx, int64_t n) { gelu_tanh_backward_of(dy, x, dx, n); }
void gelu_tanh_backward(const BFloat16Bits* dy, const BFloat16Bits* x, BFloat16Bits* dx, int64_t n) { gelu_tanh_backward_of(dy, x, dx, n); }

void gated_silu(const float* x, float* y, int64_t rows, int64_t width) { gated_silu_of(x, y, rows, width); }
void gated_silu(const BFloat16Bits* x, BFloat16Bits* y, int64_t rows, int64_t width) { gated_silu_of(x, y, rows, width); }
void gated_silu_backward(const float* dy, const float* x, float* dx, int64_t rows, int64_t width) {
  gated_silu_backward_of(dy, x, dx, rows, width);
}
void gated_silu_backward(const BFloat16Bits* dy, const BFloat16Bits* x, BFloat16Bits* dx, int64_t rows, int64_t width) {
  gated_silu_backward_of(dy, x, dx, rows, width);
}

void row_largest(const float* x, float* top, int64_t rows, int64_t width) {
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA {
    for (int64_t t = 0; t < rows; ++t) top[t] = largest_loop(x + t * width, width);
  });
}
void row_exponentials(const float* x, const float* top, float* y, float* sums, int64_t rows, int64_t width) {
#if defined(__x86_64__)
  if (avx512_available()) return sum_rows(x, top, y, sums, rows, width, exponential_lanes);
#endif
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA {
    sum_rows(x, top, y, sums, rows, width, [](const float* from, float largest, float* to, int64_t n) PLAIT_KERNEL_LAMBDA {
      return exponential_loop(from, largest, to, n);
    });
  });
}

}  // namespace plait::detail
