#include "plait/tensor/attention_kernels.h"

#include <algorithm>
#include <cmath>

#include "plait/tensor/avx512_lanes.h"

namespace plait::detail {

#if defined(__x86_64__)
namespace {

constexpr int64_t kLanes = kAvx512Lanes;
constexpr int64_t kRows = 8;                // queries (or keys) of one register tile
constexpr int64_t kBlockFloats = 64 << 10;  // of the backward's two score blocks together: they stay in the second-level cache

constexpr int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// c [8, 16 kVectors] (+)= sum over k of a(i, k) b(k, :); a(i, k) = a[i * row_step + k * k_step], b rows ldb apart.
template <int kVectors>
PLAIT_AVX512_INLINE void tile(const float* a, int64_t row_step, int64_t k_step, const float* b, int64_t ldb, int64_t depth, float* c,
                              int64_t ldc, bool add) {
  __m512 sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) sum[i][j] = add ? _mm512_loadu_ps(c + i * ldc + j * kLanes) : _mm512_setzero_ps();
  const float* row[kRows];
  for (int i = 0; i < kRows; ++i) row[i] = a + i * row_step;
  for (int64_t k = 0; k < depth; ++k) {
    __m512 right[kVectors];
    for (int j = 0; j < kVectors; ++j) right[j] = _mm512_loadu_ps(b + k * ldb + j * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const __m512 left = _mm512_set1_ps(row[i][k * k_step]);
      for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_fmadd_ps(left, right[j], sum[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(c + i * ldc + j * kLanes, sum[i][j]);
}

// Eight rows of c, `width` columns (a multiple of 16). Rows of a lie row_step apart, its columns next to each other.
PLAIT_AVX512 __attribute__((noinline)) void rows_by_matrix(const float* a, int64_t row_step, const float* b, int64_t ldb, int64_t depth,
                                                           float* c, int64_t ldc, int64_t width) {
  int64_t j = 0;
  for (; j + 2 * kLanes <= width; j += 2 * kLanes) tile<2>(a, row_step, 1, b + j, ldb, depth, c + j, ldc, false);
  if (j < width) tile<1>(a, row_step, 1, b + j, ldb, depth, c + j, ldc, false);
}

// The same with a transposed (its rows are k) and added to c.
PLAIT_AVX512 __attribute__((noinline)) void add_columns_by_matrix(const float* a, int64_t k_step, const float* b, int64_t ldb,
                                                                  int64_t depth, float* c, int64_t ldc, int64_t width) {
  int64_t j = 0;
  for (; j + 2 * kLanes <= width; j += 2 * kLanes) tile<2>(a, 1, k_step, b + j, ldb, depth, c + j, ldc, true);
  if (j < width) tile<1>(a, 1, k_step, b + j, ldb, depth, c + j, ldc, true);
}

PLAIT_AVX512_INLINE void rotate_row(float* x, const float* cosine, const float* sine, int64_t half, float direction) {
  for (int64_t j = 0; j < half; j += kLanes) {
    const __mmask16 mask = lanes_left(half - j);
    const __m512 a = _mm512_maskz_loadu_ps(mask, x + j), b = _mm512_maskz_loadu_ps(mask, x + half + j);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cosine + j);
    const __m512 s = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, sine + j), _mm512_set1_ps(direction));
    _mm512_mask_storeu_ps(x + j, mask, _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c)));
    _mm512_mask_storeu_ps(x + half + j, mask, _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)));
  }
}

struct Rotary {
  const float *cosine = nullptr, *sine = nullptr;
};

// Tokens [first, first + count) of a head as rows of fp32, D padded with zeros; rows up to `rows` are zeros. Rotated, then scaled.
template <class T>
PLAIT_AVX512 void load_rows(const T* from, int64_t stride, int64_t first, int64_t count, int64_t rows, int64_t d, const Rotary& rotary,
                            float scale, float* to) {
  const int64_t dp = padded(d), half = d / 2;
  for (int64_t t = 0; t < count; ++t) {
    float* row = to + t * dp;
    const T* x = from + (first + t) * stride;
    for (int64_t j = 0; j < dp; j += kLanes) _mm512_storeu_ps(row + j, load_lanes(x + j, lanes_left(d - j)));
    if (rotary.cosine) rotate_row(row, rotary.cosine + (first + t) * half, rotary.sine + (first + t) * half, half, 1.0f);
    if (scale != 1.0f)
      for (int64_t j = 0; j < dp; j += kLanes) _mm512_storeu_ps(row + j, _mm512_mul_ps(_mm512_loadu_ps(row + j), _mm512_set1_ps(scale)));
  }
  std::fill(to + count * dp, to + std::max(rows, count) * dp, 0.0f);
}

// One row of fp32, un-rotated in place, times `scale`, to memory.
template <class T>
PLAIT_AVX512 void store_row(float* row, int64_t d, const float* cosine, const float* sine, float scale, T* to) {
  if (cosine) rotate_row(row, cosine, sine, d / 2, -1.0f);
  for (int64_t j = 0; j < d; j += kLanes)
    store_lanes(to + j, _mm512_mul_ps(_mm512_loadu_ps(row + j), _mm512_set1_ps(scale)), lanes_left(d - j));
}

PLAIT_AVX512_INLINE __m512 low_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
PLAIT_AVX512_INLINE __m512 high_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
PLAIT_AVX512_INLINE void transpose_16(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  __m512 r[kLanes], t[kLanes];
  for (int i = 0; i < kLanes; ++i) r[i] = _mm512_loadu_ps(from + i * from_stride);
  for (int i = 0; i < kLanes; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4) {
    r[i] = low_pairs(t[i], t[i + 2]);
    r[i + 1] = high_pairs(t[i], t[i + 2]);
    r[i + 2] = low_pairs(t[i + 1], t[i + 3]);
    r[i + 3] = high_pairs(t[i + 1], t[i + 3]);
  }
  // r[4 g + j]: lane block l holds column 4 l + j of rows 4 g .. 4 g + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512 ab_even = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88), ab_odd = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
    const __m512 cd_even = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88), cd_odd = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
    _mm512_storeu_ps(to + j * to_stride, _mm512_shuffle_f32x4(ab_even, cd_even, 0x88));
    _mm512_storeu_ps(to + (8 + j) * to_stride, _mm512_shuffle_f32x4(ab_even, cd_even, 0xdd));
    _mm512_storeu_ps(to + (4 + j) * to_stride, _mm512_shuffle_f32x4(ab_odd, cd_odd, 0x88));
    _mm512_storeu_ps(to + (12 + j) * to_stride, _mm512_shuffle_f32x4(ab_odd, cd_odd, 0xdd));
  }
}

// rows [sp, dp] -> [dp, sp]
PLAIT_AVX512 void transpose(const float* rows, int64_t sp, int64_t dp, float* to) {
  for (int64_t t = 0; t < sp; t += kLanes)
    for (int64_t j = 0; j < dp; j += kLanes) transpose_16(rows + t * dp + j, dp, to + j * sp + t, sp);
}

PLAIT_AVX512_INLINE float largest(const float* x, int64_t n) {
  __m512 top = _mm512_set1_ps(x[0]);
  for (int64_t j = 0; j < n; j += kLanes) top = _mm512_mask_max_ps(top, lanes_left(n - j), top, _mm512_loadu_ps(x + j));
  return _mm512_reduce_max_ps(top);
}

// x[0, n) = exp(x - top), zeros up to `width`; returns their sum.
PLAIT_AVX512_INLINE float exponential_row(float* x, int64_t n, int64_t width, float top) {
  __m512 sum = _mm512_setzero_ps();
  int64_t j = 0;
  for (; j < n; j += kLanes) {
    const __m512 e = _mm512_maskz_mov_ps(lanes_left(n - j), exponentials(_mm512_sub_ps(_mm512_loadu_ps(x + j), _mm512_set1_ps(top))));
    _mm512_storeu_ps(x + j, e);
    sum = _mm512_add_ps(sum, e);
  }
  for (; j < width; j += kLanes) _mm512_storeu_ps(x + j, _mm512_setzero_ps());
  return _mm512_reduce_add_ps(sum);
}

// Keys that queries [first, first + count) see, and how wide their rows of scores are.
int64_t seen_keys(bool causal, int64_t length, int64_t first, int64_t count) { return causal ? std::min(length, first + count) : length; }

template <class T>
PLAIT_AVX512 void forward_head(const AttentionHeads<T>& h, int64_t head, const float* keys_t, const float* values, float* scratch) {
  const int64_t s = h.length, d = h.head_size, sp = padded(s), dp = padded(d);
  float *q = scratch, *scores = q + kRows * dp, *result = scores + kRows * sp;
  for (int64_t first = 0; first < s; first += kRows) {
    const int64_t count = std::min(kRows, s - first), seen = seen_keys(h.causal, s, first, count), width = padded(seen);
    load_rows(h.q + head * d, h.stride, first, count, kRows, d, {h.cosine, h.sine}, h.scale, q);
    rows_by_matrix(q, dp, keys_t, sp, d, scores, sp, width);
    float inverse[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t n = h.causal ? std::min(first + i + 1, seen) : s;
      const float top = largest(scores + i * sp, n), sum = exponential_row(scores + i * sp, n, width, top);
      inverse[i] = 1.0f / sum;
      if (i < count) h.log_sum[head * s + first + i] = top + std::log(sum);
    }
    rows_by_matrix(scores, sp, values, dp, seen, result, dp, dp);
    for (int64_t i = 0; i < count; ++i)
      store_row<T>(result + i * dp, d, nullptr, nullptr, inverse[i], h.out + (first + i) * h.out_stride + head * d);
  }
}

int64_t block_rows(int64_t sp) { return std::clamp<int64_t>(kBlockFloats / sp / kRows * kRows, kRows, 64); }

struct BackwardBuffers {
  float *keys, *keys_t, *values_t, *d_keys, *d_values, *q, *d_out, *scores, *d_scores, *result;
  BackwardBuffers(float* at, int64_t sp, int64_t dp) {
    const int64_t rows = block_rows(sp);
    auto take = [&](int64_t n) {
      float* here = at;
      at += n;
      return here;
    };
    keys = take(sp * dp), keys_t = take(sp * dp), values_t = take(sp * dp), d_keys = take(sp * dp), d_values = take(sp * dp);
    q = take(rows * dp), d_out = take(rows * dp), scores = take(rows * sp), d_scores = take(rows * sp), result = take(kRows * dp);
  }
};

// Row i of a block: probabilities from scores, and the gradient of the scores from that of the probabilities.
PLAIT_AVX512_INLINE void softmax_backward_row(float* p, float* ds, int64_t n, int64_t width, float log_sum, float delta) {
  exponential_row(p, n, width, log_sum);
  for (int64_t j = 0; j < width; j += kLanes) {
    const __m512 e = _mm512_sub_ps(_mm512_loadu_ps(ds + j), _mm512_set1_ps(delta));
    _mm512_storeu_ps(ds + j, _mm512_maskz_mul_ps(lanes_left(std::max<int64_t>(0, n - j)), _mm512_loadu_ps(p + j), e));
  }
}

template <class T>
PLAIT_AVX512 float row_dot(const T* x, const float* y, int64_t d) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t j = 0; j < d; j += kLanes) {
    const __mmask16 mask = lanes_left(d - j);
    sum = _mm512_fmadd_ps(load_lanes(x + j, mask), _mm512_maskz_loadu_ps(mask, y + j), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

template <class T>
PLAIT_AVX512 void backward_block(const AttentionHeads<T>& h, const AttentionGradients<T>& g, int64_t head, int64_t first, int64_t count,
                                 const BackwardBuffers& b) {
  const int64_t s = h.length, d = h.head_size, sp = padded(s), dp = padded(d), half = d / 2;
  const int64_t rows = (count + kRows - 1) / kRows * kRows;
  load_rows(h.q + head * d, h.stride, first, count, rows, d, {h.cosine, h.sine}, h.scale, b.q);
  load_rows(g.d_out + head * d, g.d_out_stride, first, count, rows, d, {}, 1.0f, b.d_out);
  for (int64_t i = 0; i < rows; i += kRows) {
    const int64_t seen = seen_keys(h.causal, s, first + i, kRows), width = padded(seen);
    float *p = b.scores + i * sp, *ds = b.d_scores + i * sp;
    rows_by_matrix(b.q + i * dp, dp, b.keys_t, sp, d, p, sp, width);
    rows_by_matrix(b.d_out + i * dp, dp, b.values_t, sp, d, ds, sp, width);
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t t = first + i + r, n = i + r >= count ? 0 : h.causal ? t + 1 : s;
      const float delta = n > 0 ? row_dot(h.out + t * h.out_stride + head * d, b.d_out + (i + r) * dp, d) : 0.0f;
      softmax_backward_row(p + r * sp, ds + r * sp, n, width, n > 0 ? h.log_sum[head * s + t] : 0.0f, delta);
    }
    rows_by_matrix(ds, sp, b.keys, dp, seen, b.result, dp, dp);
    for (int64_t r = 0; r < std::min(kRows, count - i); ++r) {
      const int64_t t = first + i + r;
      store_row<T>(b.result + r * dp, d, h.cosine ? h.cosine + t * half : nullptr, h.sine ? h.sine + t * half : nullptr, h.scale,
                   g.dq + t * g.stride + head * d);
    }
  }
  const int64_t seen = padded(seen_keys(h.causal, s, first, count));
  for (int64_t key = 0; key < seen; key += kRows) {
    // Earlier queries do not see these keys; their scores were not computed either.
    const int64_t from = h.causal ? std::max<int64_t>(0, (key - first) / kRows * kRows) : 0;
    if (from >= rows) break;
    add_columns_by_matrix(b.scores + from * sp + key, sp, b.d_out + from * dp, dp, rows - from, b.d_values + key * dp, dp, dp);
    add_columns_by_matrix(b.d_scores + from * sp + key, sp, b.q + from * dp, dp, rows - from, b.d_keys + key * dp, dp, dp);
  }
}

}  // namespace

bool attention_kernels_available() { return avx512_available(); }

template <class T>
PLAIT_AVX512 void attention_forward(const AttentionHeads<T>& h, float* scratch) {
  const int64_t s = h.length, sp = padded(s), dp = padded(h.head_size);
  float *keys_t = scratch, *values = keys_t + sp * dp, *rest = values + sp * dp;
  load_rows(h.k, h.stride, 0, s, sp, h.head_size, {h.cosine, h.sine}, 1.0f, values);
  transpose(values, sp, dp, keys_t);
  load_rows(h.v, h.stride, 0, s, sp, h.head_size, {}, 1.0f, values);
  for (int64_t head = 0; head < h.num_queries; ++head) forward_head(h, head, keys_t, values, rest);
}

template <class T>
PLAIT_AVX512 void attention_backward(const AttentionHeads<T>& h, const AttentionGradients<T>& g, float* scratch) {
  const int64_t s = h.length, d = h.head_size, sp = padded(s), dp = padded(d), half = d / 2;
  const BackwardBuffers b(scratch, sp, dp);
  load_rows(h.v, h.stride, 0, s, sp, d, {}, 1.0f, b.keys);
  transpose(b.keys, sp, dp, b.values_t);
  load_rows(h.k, h.stride, 0, s, sp, d, {h.cosine, h.sine}, 1.0f, b.keys);
  transpose(b.keys, sp, dp, b.keys_t);
  std::fill(b.d_keys, b.d_keys + sp * dp, 0.0f);
  std::fill(b.d_values, b.d_values + sp * dp, 0.0f);
  const int64_t rows = block_rows(sp);
  for (int64_t head = 0; head < h.num_queries; ++head)
    for (int64_t first = 0; first < s; first += rows) backward_block(h, g, head, first, std::min(rows, s - first), b);
  for (int64_t t = 0; t < s; ++t) {
    store_row<T>(b.d_keys + t * dp, d, h.cosine ? h.cosine + t * half : nullptr, h.sine ? h.sine + t * half : nullptr, 1.0f,
                 g.dk + t * g.stride);
    store_row<T>(b.d_values + t * dp, d, nullptr, nullptr, 1.0f, g.dv + t * g.stride);
  }
}

int64_t attention_forward_scratch(int64_t length, int64_t head_size) {
  const int64_t sp = padded(length), dp = padded(head_size);
  return 2 * sp * dp + kRows * (2 * dp + sp);
}
int64_t attention_backward_scratch(int64_t length, int64_t head_size) {
  const int64_t sp = padded(length), dp = padded(head_size), rows = block_rows(sp);
  return 5 * sp * dp + 2 * rows * (dp + sp) + kRows * dp;
}
#else
bool attention_kernels_available() { return false; }
int64_t attention_forward_scratch(int64_t, int64_t) { return 0; }
int64_t attention_backward_scratch(int64_t, int64_t) { return 0; }
template <class T>
void attention_forward(const AttentionHeads<T>&, float*) {}
template <class T>
void attention_backward(const AttentionHeads<T>&, const AttentionGradients<T>&, float*) {}
#endif

#define PLAIT_INSTANTIATE(T) \
  template void attention_forward<T>(const AttentionHeads<T>&, float*); \
  template void attention_backward<T>(const AttentionHeads<T>&, const AttentionGradients<T>&, float*);
PLAIT_INSTANTIATE(float)
PLAIT_INSTANTIATE(BFloat16Bits)
PLAIT_INSTANTIATE(Float16Bits)
#undef PLAIT_INSTANTIATE

}  // namespace plait::detail
