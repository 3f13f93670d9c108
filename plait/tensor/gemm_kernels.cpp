#include "plait/tensor/gemm_kernels.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 says it of its own _mm512_undefined_ps()
#include <immintrin.h>
#endif

#include <algorithm>

namespace plait::detail {

#if defined(__x86_64__)
namespace {

#define PLAIT_AVX512 __attribute__((target("avx512f")))
#define PLAIT_AVX512_INLINE inline __attribute__((always_inline, target("avx512f")))

constexpr int64_t kTileRows = 14;  // 14 x 2 vectors of sums, 2 of B: 30 of the 32 registers
constexpr int64_t kTileColumns = 32;
constexpr int64_t kDepth = 512;                      // most of K at once
constexpr int64_t kBlockRows = 16 * kTileRows;       // packed A: in the second-level cache
constexpr int64_t kPackedFloats = int64_t{1} << 20;  // packed B: 4 MiB, in the third-level cache
constexpr int64_t kVector = 16;

int64_t pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }

// K in equal pieces: a function of K only, as is every sum.
struct Depths {
  explicit Depths(int64_t k) : size(pieces(k, std::max<int64_t>(pieces(k, kDepth), 1))), count(size > 0 ? pieces(k, size) : 0) {}
  int64_t size, count;
};

// Panels lie behind each other; the gap keeps panels of equal place in different sets of the cache.
template <int64_t kWidth>
int64_t panel_floats(int64_t depth) {
  return kWidth == kTileColumns ? kWidth * depth : pieces(kWidth * depth + kVector, kVector) * kVector;
}

// B is packed for `columns` of N and `depths` pieces of K at a time.
struct Blocking {
  explicit Blocking(const Product& p) : depth(p.k) {
    const int64_t most = std::max<int64_t>(kPackedFloats / (kTileColumns * std::max<int64_t>(depth.size, 1)), 1);  // panels
    const int64_t panels = std::max<int64_t>(pieces(p.n, kTileColumns), 1);
    const int64_t together = std::clamp<int64_t>(most / panels, 1, std::max<int64_t>(depth.count, 1));
    depths = together;
    columns = pieces(panels, pieces(panels, most)) * kTileColumns;
    rows = std::min<int64_t>(kBlockRows, std::max<int64_t>(pieces(p.m, kTileRows), 1) * kTileRows);
  }
  int64_t b_piece() const { return columns / kTileColumns * panel_floats<kTileColumns>(depth.size); }
  int64_t a_floats() const { return rows / kTileRows * panel_floats<kTileRows>(depth.size) + kVector; }
  Depths depth;
  int64_t depths, columns, rows;
};

PLAIT_AVX512_INLINE __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>(n >= kVector ? 0xffff : n <= 0 ? 0 : (1 << n) - 1); }

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

// to[k * kWidth + w] = from[w * stride + k] for 16 (or the last `width`) w and all k. Stores are whole vectors in rising order, so what one
// writes beyond its row the next one overwrites; behind the last row there is a gap.
template <int64_t kWidth>
PLAIT_AVX512 void pack_transposed(const float* from, int64_t stride, int64_t width, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; k += kVector) {
    const int64_t here = std::min(kVector, depth - k);
    const __mmask16 mask = first_lanes(here);
    __m512 x[16];
#pragma GCC unroll 16
    for (int64_t w = 0; w < 16; ++w) x[w] = w < width ? _mm512_maskz_loadu_ps(mask, from + w * stride + k) : _mm512_setzero_ps();
    transpose(x);
    if (here == kVector) {
#pragma GCC unroll 16
      for (int64_t j = 0; j < 16; ++j) _mm512_storeu_ps(to + (k + j) * kWidth, x[j]);
    } else {
      for (int64_t j = 0; j < here; ++j) _mm512_storeu_ps(to + (k + j) * kWidth, x[j]);
    }
  }
}

// Packs `width` columns: element (k, w) at from[k * k_stride + w * w_stride]. Columns that fill up the last panel are zero or left as they
// are: their sums are not stored.
template <int64_t kWidth>
PLAIT_AVX512 void pack(const float* from, int64_t k_stride, int64_t w_stride, int64_t width, int64_t depth, float* to) {
  const int64_t panel = panel_floats<kWidth>(depth);
  if (w_stride == 1) {
    constexpr int64_t kRun = 4;  // rows of the source read beside each other
    for (int64_t k0 = 0; k0 < depth; k0 += kRun) {
      const int64_t k1 = std::min(k0 + kRun, depth);
      float* out = to;
      for (int64_t w = 0; w < width; w += kWidth, out += panel) {
        const int64_t here = std::min(kWidth, width - w);
        const __mmask16 low = first_lanes(here), high = first_lanes(here - kVector);
        for (int64_t k = k0; k < k1; ++k) {
          _mm512_storeu_ps(out + k * kWidth, _mm512_maskz_loadu_ps(low, from + k * k_stride + w));
          if (kWidth > kVector)
            _mm512_storeu_ps(out + k * kWidth + kVector, _mm512_maskz_loadu_ps(high, from + k * k_stride + w + kVector));
        }
      }
    }
    return;
  }
  for (int64_t w = 0; w < width; w += kWidth, to += panel) {
    const float* source = from + w * w_stride;
    const int64_t here = std::min(kWidth, width - w);
    if (k_stride == 1) {
      for (int64_t part = 0; part < kWidth; part += kVector)
        pack_transposed<kWidth>(source + part * w_stride, w_stride, std::min(kVector, here - part), depth, to + part);
    } else {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t j = 0; j < kWidth; ++j) to[k * kWidth + j] = j < here ? source[k * k_stride + j * w_stride] : 0.0f;
    }
  }
}

// An operand's next block, fetched into the second-level cache while this one is computed: packing would wait for memory at every line.
class Ahead {
 public:
  Ahead() = default;
  // The block rows x columns at `block`, during `steps` calls of fetch().
  Ahead(const MatrixView& block, int64_t rows, int64_t columns, int64_t steps) : at_(block.data) {
    const bool by_rows = block.column_stride == 1;
    if (!by_rows && block.row_stride != 1) return;
    stride_ = by_rows ? block.row_stride : block.column_stride;
    lines_ = pieces(by_rows ? columns : rows, kVector);
    left_ = (by_rows ? rows : columns) * lines_;
    lines_a_step_ = pieces(left_, steps);
  }
  PLAIT_AVX512_INLINE void fetch() {
    for (int64_t n = std::min(lines_a_step_, left_); n > 0; --n, --left_) {
      __builtin_prefetch(at_ + line_ * kVector, 0, 2);
      if (++line_ < lines_) continue;
      line_ = 0;
      at_ += stride_;
    }
  }

 private:
  const float* at_ = nullptr;
  int64_t stride_ = 0, line_ = 0, lines_ = 0, left_ = 0, lines_a_step_ = 0;
};

constexpr int64_t kDepthAStep = 8;  // of a tile, between two steps of Ahead

struct Tile {
  const float *a, *b;
  int64_t depth;
  float* c;
  int64_t c_stride;
  const float* bias;  // null: none
  int64_t columns;
  bool add;
  Ahead* ahead;
};

template <int kRows, int kVectors>
PLAIT_AVX512 void multiply_tile(const Tile& t) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_setzero_ps();
  const float *a = t.a, *b = t.b;
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(t.c + i * t.c_stride + v * kVector, 1, 2);
  for (int64_t k = 0; k < t.depth;) {
    t.ahead->fetch();
    for (const int64_t end = std::min(k + kDepthAStep, t.depth); k < end; ++k, a += kTileRows, b += kTileColumns) {
      __m512 column[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) column[v] = _mm512_load_ps(b + v * kVector);
#pragma GCC unroll 14
      for (int i = 0; i < kRows; ++i) {
        const __m512 row = _mm512_set1_ps(a[i]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_fmadd_ps(row, column[v], sum[i][v]);
      }
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const __mmask16 mask = first_lanes(t.columns - v * kVector);
    const __m512 bias = t.bias ? _mm512_maskz_loadu_ps(mask, t.bias + v * kVector) : _mm512_setzero_ps();
    float* c = t.c + v * kVector;
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i, c += t.c_stride) {
      __m512 y = sum[i][v];
      if (t.add) y = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), y);
      if (t.bias) y = _mm512_add_ps(y, bias);
      _mm512_mask_storeu_ps(c, mask, y);
    }
  }
}

using TileFunction = void (*)(const Tile&);
#define PLAIT_TILES(rows) \
  { multiply_tile<rows, 1>, multiply_tile<rows, 2> }
constexpr TileFunction kTiles[kTileRows][2] = {PLAIT_TILES(1),  PLAIT_TILES(2),  PLAIT_TILES(3),  PLAIT_TILES(4), PLAIT_TILES(5),
                                               PLAIT_TILES(6),  PLAIT_TILES(7),  PLAIT_TILES(8),  PLAIT_TILES(9), PLAIT_TILES(10),
                                               PLAIT_TILES(11), PLAIT_TILES(12), PLAIT_TILES(13), PLAIT_TILES(14)};
#undef PLAIT_TILES

// rows x columns of C, at `first`, from one packed block of A and one of B.
void multiply_block(const Tile& first, int64_t rows, int64_t columns) {
  Tile t = first;
  for (int64_t j = 0; j < columns; j += kTileColumns, t.b += panel_floats<kTileColumns>(t.depth)) {
    t.columns = std::min(kTileColumns, columns - j);
    t.bias = first.bias ? first.bias + j : nullptr;
    t.a = first.a;
    for (int64_t i = 0; i < rows; i += kTileRows, t.a += panel_floats<kTileRows>(t.depth)) {
      t.c = first.c + i * t.c_stride + j;
      kTiles[std::min(kTileRows, rows - i) - 1][t.columns > kVector](t);
    }
  }
}

// Of A, behind the one at row m0 and piece d of K. Measured: it pays where few columns share the packing and leave room in the cache.
Ahead next_block(const Product& p, const Blocking& s, int64_t m0, int64_t d, int64_t d0, int64_t d1, int64_t columns, int64_t steps) {
  constexpr int64_t kMostOfB = 64 << 10;  // floats
  constexpr int64_t kSameSets = 1024;     // lines at such a distance push each other out
  if (columns * s.depth.size > kMostOfB || std::max(p.a.row_stride, p.a.column_stride) % kSameSets == 0) return {};
  const int64_t next_d = d + 1 < d1 ? d + 1 : d0, next_m = d + 1 < d1 ? m0 : m0 + s.rows;
  if (next_m >= p.m) return {};
  const int64_t k0 = next_d * s.depth.size;
  return {{p.a.data + next_m * p.a.row_stride + k0 * p.a.column_stride, p.a.row_stride, p.a.column_stride},
          std::min(s.rows, p.m - next_m),
          std::min(s.depth.size, p.k - k0),
          steps};
}

// All rows of C, columns [n0, n0 + columns), pieces [d0, d1) of K. B is packed on the way through the first rows.
void multiply_columns(const Product& p, const Blocking& s, int64_t n0, int64_t columns, int64_t d0, int64_t d1, float* scratch) {
  float* packed_a = scratch + s.depths * s.b_piece();
  for (int64_t m0 = 0; m0 < p.m; m0 += s.rows) {
    const int64_t rows = std::min(s.rows, p.m - m0);
    for (int64_t d = d0; d < d1; ++d) {
      const int64_t k0 = d * s.depth.size, depth = std::min(s.depth.size, p.k - k0);
      const float* a = p.a.data + m0 * p.a.row_stride + k0 * p.a.column_stride;
      const float* b = p.b.data + k0 * p.b.row_stride + n0 * p.b.column_stride;
      float* packed_b = scratch + (d - d0) * s.b_piece();
      if (m0 == 0) pack<kTileColumns>(b, p.b.row_stride, p.b.column_stride, columns, depth, packed_b);
      pack<kTileRows>(a, p.a.column_stride, p.a.row_stride, rows, depth, packed_a);
      const int64_t steps = pieces(rows, kTileRows) * pieces(columns, kTileColumns) * pieces(depth, kDepthAStep);
      Ahead ahead = next_block(p, s, m0, d, d0, d1, columns, steps);
      const Tile first{.a = packed_a,
                       .b = packed_b,
                       .depth = depth,
                       .c = p.c + m0 * p.c_stride + n0,
                       .c_stride = p.c_stride,
                       .bias = p.bias && d + 1 == s.depth.count ? p.bias + n0 : nullptr,
                       .columns = columns,
                       .add = p.accumulate || d > 0,
                       .ahead = &ahead};
      multiply_block(first, rows, columns);
    }
  }
}

void write_without_product(const Product& p) {
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      float& c = p.c[i * p.c_stride + j];
      if (!p.accumulate) c = 0.0f;
      if (p.bias) c += p.bias[j];
    }
}

}  // namespace

bool can_multiply() { return __builtin_cpu_supports("avx512f"); }
bool should_multiply() { return can_multiply() && !__builtin_cpu_is("intel"); }

int64_t scratch_floats(const Product& p) {
  const Blocking s(p);
  return s.depths * s.b_piece() + s.a_floats();
}

void multiply(const Product& p, float* scratch) {
  if (p.k == 0) return write_without_product(p);
  const Blocking s(p);
  for (int64_t n0 = 0; n0 < p.n; n0 += s.columns)
    for (int64_t d0 = 0; d0 < s.depth.count; d0 += s.depths)
      multiply_columns(p, s, n0, std::min(s.columns, p.n - n0), d0, std::min(d0 + s.depths, s.depth.count), scratch);
}

#else

bool can_multiply() { return false; }
bool should_multiply() { return false; }
int64_t scratch_floats(const Product&) { return 0; }
void multiply(const Product&, float*) {}

#endif

}  // namespace plait::detail
