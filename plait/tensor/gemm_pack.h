// Packing of operands for gemm_kernels.cpp, which alone includes it. A unit is what one lane multiplies at a time: a float, or two bfloat16
// that follow each other in K (an odd last one with zero). A panel has the units of kWidth rows of A (columns of B), unit by unit of K.
#pragma once

#include <algorithm>
#include <cstring>

#include "plait/tensor/avx512_lanes.h"
#include "plait/tensor/gemm_kernels.h"

#if defined(__x86_64__)
namespace plait::detail {

constexpr int64_t kTileRows = 14;  // 14 x 2 vectors of sums, 2 of B: 30 of the 32 registers
constexpr int64_t kTileColumns = 32;
constexpr int64_t kVector = kAvx512Lanes;

inline int64_t pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }
PLAIT_AVX512_INLINE __mmask16 first_lanes(int64_t n) { return n <= 0 ? __mmask16{0} : lanes_left(n); }

template <class T>
constexpr int64_t kInUnit = 4 / static_cast<int64_t>(sizeof(T));

// Panels lie behind each other; the gap keeps panels of equal place in different sets of the cache.
template <int64_t kWidth>
int64_t panel_floats(int64_t depth) {
  return kWidth == kTileColumns ? kWidth * depth : pieces(kWidth * depth + kVector, kVector) * kVector;
}

PLAIT_AVX512_INLINE void transpose(__m512 (&x)[16]) {
  __m512 t[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 2; ++j) {
      const __m512d low = _mm512_castps_pd(t[4 * i + j]), high = _mm512_castps_pd(t[4 * i + 2 + j]);
      x[4 * i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      x[4 * i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(x[i], x[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(x[i], x[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    x[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    x[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    x[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

// The unit of K number `unit` of one row, `depth` elements in all, when they do not lie in a whole unit.
template <class T>
float single_unit(const T* from, int64_t k_stride, int64_t unit, int64_t depth) {
  T both[kInUnit<T>] = {};
  for (int64_t i = 0; i < kInUnit<T> && unit * kInUnit<T> + i < depth; ++i) both[i] = from[(unit * kInUnit<T> + i) * k_stride];
  float bits;
  std::memcpy(&bits, both, sizeof bits);
  return bits;
}

// to[u * kWidth + w] = unit u of row w, for 16 (or the last `width`) rows that each lie in one piece. Stores are whole vectors in rising
// order, so what one writes beyond its row the next one overwrites; behind the last row there is a gap.
template <int64_t kWidth, class T>
PLAIT_AVX512 void pack_transposed(const T* from, int64_t stride, int64_t width, int64_t depth, float* to) {
  const int64_t whole = depth / kInUnit<T>;
  for (int64_t u = 0; u < whole; u += kVector) {
    const int64_t here = std::min(kVector, whole - u);
    const __mmask16 mask = first_lanes(here);
    __m512 x[16];
#pragma GCC unroll 16
    for (int64_t w = 0; w < 16; ++w)
      x[w] = w < width ? _mm512_maskz_loadu_ps(mask, static_cast<const void*>(from + w * stride + u * kInUnit<T>)) : _mm512_setzero_ps();
    transpose(x);
    if (here == kVector) {
#pragma GCC unroll 16
      for (int64_t j = 0; j < 16; ++j) _mm512_storeu_ps(to + (u + j) * kWidth, x[j]);
    } else {
      for (int64_t j = 0; j < here; ++j) _mm512_storeu_ps(to + (u + j) * kWidth, x[j]);
    }
  }
  if (whole * kInUnit<T> < depth)
    for (int64_t w = 0; w < std::min(kWidth, kVector); ++w)
      to[whole * kWidth + w] = w < width ? single_unit(from + w * stride, 1, whole, depth) : 0.0f;
}

// 16 units of neighbouring columns from row k of the source and, for pairs, the one below it.
PLAIT_AVX512_INLINE __m512 units_of_rows(const float* from, int64_t, bool, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, from); }
PLAIT_AVX512_INLINE __m512 units_of_rows(const BFloat16Bits* from, int64_t k_stride, bool has_second, __mmask16 mask) {
  __m512i units = load_words(&from->bits, mask);
  if (has_second) units = _mm512_or_si512(units, _mm512_slli_epi32(load_words(&from[k_stride].bits, mask), 16));
  return _mm512_castsi512_ps(units);
}

// Rows of the source are rows of the panels.
template <int64_t kWidth, class T>
PLAIT_AVX512 void pack_rows(const T* from, int64_t k_stride, int64_t width, int64_t depth, float* to) {
  constexpr int64_t kRun = 4;  // rows of panels filled beside each other
  const int64_t units = pieces(depth, kInUnit<T>), panel = panel_floats<kWidth>(units);
  for (int64_t u0 = 0; u0 < units; u0 += kRun) {
    const int64_t u1 = std::min(u0 + kRun, units);
    float* out = to;
    for (int64_t w = 0; w < width; w += kWidth, out += panel) {
      // More than the panel's width is read where it is there, for whole vectors: the next row overwrites it, or the gap takes it.
      const __mmask16 low = first_lanes(width - w), high = first_lanes(width - w - kVector);
      for (int64_t u = u0; u < u1; ++u) {
        const int64_t k = u * kInUnit<T>;
        const bool pair = k + 1 < depth;
        _mm512_storeu_ps(out + u * kWidth, units_of_rows(from + k * k_stride + w, k_stride, pair, low));
        if (kWidth > kVector)
          _mm512_storeu_ps(out + u * kWidth + kVector, units_of_rows(from + k * k_stride + w + kVector, k_stride, pair, high));
      }
    }
  }
}

// Packs `width` columns: element (k, w) at from[k * k_stride + w * w_stride]. Columns that fill up the last panel are zero or left as they
// are: their sums are not stored.
template <int64_t kWidth, class T>
void pack(const T* from, int64_t k_stride, int64_t w_stride, int64_t width, int64_t depth, float* to) {
  if (w_stride == 1) return pack_rows<kWidth>(from, k_stride, width, depth, to);
  const int64_t units = pieces(depth, kInUnit<T>), panel = panel_floats<kWidth>(units);
  for (int64_t w = 0; w < width; w += kWidth, to += panel) {
    const T* source = from + w * w_stride;
    const int64_t here = std::min(kWidth, width - w);
    if (k_stride == 1) {
      for (int64_t part = 0; part < kWidth; part += kVector)
        pack_transposed<kWidth>(source + part * w_stride, w_stride, std::min(kVector, here - part), depth, to + part);
    } else {
      for (int64_t u = 0; u < units; ++u)
        for (int64_t j = 0; j < kWidth; ++j) to[u * kWidth + j] = j < here ? single_unit(source + j * w_stride, k_stride, u, depth) : 0.0f;
    }
  }
}

// An operand's next block, fetched into the second-level cache while this one is computed: packing would wait for memory at every line.
class Ahead {
 public:
  Ahead() = default;
  // The block rows x columns at `block`, during `steps` calls of fetch().
  template <class T>
  Ahead(const MatrixViewOf<T>& block, int64_t rows, int64_t columns, int64_t steps) : at_(reinterpret_cast<const char*>(block.data)) {
    const bool by_rows = block.column_stride == 1;
    if (!by_rows && block.row_stride != 1) return;
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    stride_ = (by_rows ? block.row_stride : block.column_stride) * kBytes;
    lines_ = pieces((by_rows ? columns : rows) * kBytes, kLine);
    left_ = (by_rows ? rows : columns) * lines_;
    lines_a_step_ = pieces(left_, steps);
  }
  PLAIT_AVX512_INLINE void fetch() {
    for (int64_t n = std::min(lines_a_step_, left_); n > 0; --n, --left_) {
      __builtin_prefetch(at_ + line_ * kLine, 0, 2);
      if (++line_ < lines_) continue;
      line_ = 0;
      at_ += stride_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes
  const char* at_ = nullptr;
  int64_t stride_ = 0, line_ = 0, lines_ = 0, left_ = 0, lines_a_step_ = 0;
};

}  // namespace plait::detail

#endif
