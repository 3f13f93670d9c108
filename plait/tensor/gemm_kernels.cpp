#include "plait/tensor/gemm_kernels.h"

#include <algorithm>

#include "plait/tensor/gemm_pack.h"

namespace plait::detail {

#if defined(__x86_64__)
namespace {

constexpr int64_t kDepth = 512;                      // most of K at once, in units
constexpr int64_t kBlockRows = 16 * kTileRows;       // packed A: in the second-level cache
constexpr int64_t kPackedFloats = int64_t{1} << 20;  // packed B: 4 MiB, in the third-level cache

// The units of K in equal pieces: a function of K only, as is every sum.
struct Depths {
  explicit Depths(int64_t units)
      : size(pieces(units, std::max<int64_t>(pieces(units, kDepth), 1))), count(size > 0 ? pieces(units, size) : 0) {}
  int64_t size, count;
};

// B is packed for `columns` of N and `depths` pieces of K at a time: for all of K when C is rounded, which happens once.
template <class T>
struct Blocking {
  explicit Blocking(const ProductOf<T>& p) : depth(pieces(p.k, kInUnit<T>)) {
    int64_t most = std::max<int64_t>(kPackedFloats / (kTileColumns * std::max<int64_t>(depth.size, 1)), 1);  // panels
    const int64_t panels = std::max<int64_t>(pieces(p.n, kTileColumns), 1), all = std::max<int64_t>(depth.count, 1);
    if (p.rounded) most = std::max<int64_t>(most / all, 1);
    depths = p.rounded ? all : std::clamp<int64_t>(most / panels, 1, all);
    columns = pieces(panels, pieces(panels, most)) * kTileColumns;
    rows = std::min<int64_t>(kBlockRows, std::max<int64_t>(pieces(p.m, kTileRows), 1) * kTileRows);
    sums = p.rounded && depth.count > 1 ? rows * columns : 0;
  }
  int64_t b_piece() const { return columns / kTileColumns * panel_floats<kTileColumns>(depth.size); }
  int64_t a_floats() const { return rows / kTileRows * panel_floats<kTileRows>(depth.size) + kVector; }
  Depths depth;
  int64_t depths, columns, rows;
  int64_t sums;  // floats: of a block of C, before it is rounded
};

constexpr int64_t kDepthAStep = 8;  // of a tile, between two steps of Ahead

template <class T>
struct Tile {
  const float *a, *b;
  int64_t depth;  // units
  float* c;       // sums
  int64_t c_stride;
  const float* bias;  // null: none
  int64_t columns;
  bool add;
  T* rounded;  // takes the result in place of c; null: not
  int64_t rounded_stride;
  Ahead* ahead;
};

// sum += row * column, and for pairs the product of their second halves. The compiler has the instruction only for whole functions that no
// other CPU can run.
template <class T>
PLAIT_AVX512_INLINE void multiply_add(__m512& sum, __m512 row, __m512 column) {
  if constexpr (kInUnit<T> == 2) asm("vdpbf16ps %1, %2, %0" : "+v"(sum) : "v"(row), "v"(column));
  else sum = _mm512_fmadd_ps(row, column, sum);
}

template <class T, int kRows, int kVectors>
PLAIT_AVX512 void multiply_tile(const Tile<T>& t) {
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
        for (int v = 0; v < kVectors; ++v) multiply_add<T>(sum[i][v], row, column[v]);
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
      if (t.rounded) store_lanes(t.rounded + i * t.rounded_stride + v * kVector, y, mask);
      else _mm512_mask_storeu_ps(c, mask, y);
    }
  }
}

template <class T>
using TileFunction = void (*)(const Tile<T>&);
#define PLAIT_TILES(rows) \
  { multiply_tile<T, rows, 1>, multiply_tile<T, rows, 2> }
template <class T>
constexpr TileFunction<T> kTiles[kTileRows][2] = {PLAIT_TILES(1),  PLAIT_TILES(2),  PLAIT_TILES(3),  PLAIT_TILES(4), PLAIT_TILES(5),
                                                  PLAIT_TILES(6),  PLAIT_TILES(7),  PLAIT_TILES(8),  PLAIT_TILES(9), PLAIT_TILES(10),
                                                  PLAIT_TILES(11), PLAIT_TILES(12), PLAIT_TILES(13), PLAIT_TILES(14)};
#undef PLAIT_TILES

// rows x columns of C, at `first`, from one packed block of A and one of B.
template <class T>
void multiply_block(const Tile<T>& first, int64_t rows, int64_t columns) {
  Tile<T> t = first;
  for (int64_t j = 0; j < columns; j += kTileColumns, t.b += panel_floats<kTileColumns>(t.depth)) {
    t.columns = std::min(kTileColumns, columns - j);
    t.bias = first.bias ? first.bias + j : nullptr;
    t.a = first.a;
    for (int64_t i = 0; i < rows; i += kTileRows, t.a += panel_floats<kTileRows>(t.depth)) {
      t.c = first.c + i * t.c_stride + j;
      t.rounded = first.rounded ? first.rounded + i * t.rounded_stride + j : nullptr;
      kTiles<T>[std::min(kTileRows, rows - i) - 1][t.columns > kVector](t);
    }
  }
}

// A piece of K, of those that are packed together.
struct Piece {
  int64_t index, first, end;
};

// Of A, behind the one at row m0 and this piece. Measured: it pays where few columns share the packing and leave room in the cache.
template <class T>
Ahead next_block(const ProductOf<T>& p, const Blocking<T>& s, int64_t m0, const Piece& d, int64_t columns, int64_t steps) {
  constexpr int64_t kMostOfB = 64 << 10;                                 // floats
  constexpr int64_t kSameSets = 4096 / static_cast<int64_t>(sizeof(T));  // lines at such a distance push each other out
  if (columns * s.depth.size > kMostOfB || std::max(p.a.row_stride, p.a.column_stride) % kSameSets == 0) return {};
  const int64_t next_d = d.index + 1 < d.end ? d.index + 1 : d.first, next_m = d.index + 1 < d.end ? m0 : m0 + s.rows;
  if (next_m >= p.m) return {};
  const int64_t size = s.depth.size * kInUnit<T>, k0 = next_d * size;
  return {MatrixViewOf<T>{p.a.data + next_m * p.a.row_stride + k0 * p.a.column_stride, p.a.row_stride, p.a.column_stride},
          std::min(s.rows, p.m - next_m), std::min(size, p.k - k0), steps};
}

// Rows from m0 on of the columns [n0, n0 + columns), one piece of K. B is packed on the way through the first rows.
template <class T>
void multiply_piece(const ProductOf<T>& p, const Blocking<T>& s, int64_t m0, int64_t n0, int64_t columns, const Piece& d, float* scratch) {
  float *packed_a = scratch + s.depths * s.b_piece(), *sums = packed_a + s.a_floats(),
        *packed_b = scratch + (d.index - d.first) * s.b_piece();
  const int64_t rows = std::min(s.rows, p.m - m0), k0 = d.index * s.depth.size * kInUnit<T>;
  const int64_t elements = std::min(s.depth.size * kInUnit<T>, p.k - k0), depth = pieces(elements, kInUnit<T>);
  const T *a = p.a.data + m0 * p.a.row_stride + k0 * p.a.column_stride, *b = p.b.data + k0 * p.b.row_stride + n0 * p.b.column_stride;
  if (m0 == 0) pack<kTileColumns>(b, p.b.row_stride, p.b.column_stride, columns, elements, packed_b);
  pack<kTileRows>(a, p.a.column_stride, p.a.row_stride, rows, elements, packed_a);
  const bool last = d.index + 1 == s.depth.count;
  Ahead ahead = next_block(p, s, m0, d, columns, pieces(rows, kTileRows) * pieces(columns, kTileColumns) * pieces(depth, kDepthAStep));
  const Tile<T> first{.a = packed_a,
                      .b = packed_b,
                      .depth = depth,
                      .c = p.rounded ? sums : p.c + m0 * p.c_stride + n0,
                      .c_stride = p.rounded ? columns : p.c_stride,
                      .bias = p.bias && last ? p.bias + n0 : nullptr,
                      .columns = columns,
                      .add = p.accumulate || d.index > 0,
                      .rounded = p.rounded && last ? p.rounded + m0 * p.c_stride + n0 : nullptr,
                      .rounded_stride = p.c_stride,
                      .ahead = &ahead};
  multiply_block(first, rows, columns);
}

template <class T>
PLAIT_AVX512 void write_without_product(const ProductOf<T>& p) {
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      const float bias = p.bias ? p.bias[j] : 0.0f;
      if (p.rounded) store_lanes(p.rounded + i * p.c_stride + j, _mm512_set1_ps(bias), 1);
      else p.c[i * p.c_stride + j] = (p.accumulate ? p.c[i * p.c_stride + j] : 0.0f) + bias;
    }
}

template <class T>
int64_t scratch_of(const ProductOf<T>& p) {
  const Blocking<T> s(p);
  return s.depths * s.b_piece() + s.a_floats() + s.sums;
}

template <class T>
void multiply_all(const ProductOf<T>& p, float* scratch) {
  if (p.k == 0) return write_without_product(p);
  const Blocking<T> s(p);
  for (int64_t n0 = 0; n0 < p.n; n0 += s.columns)
    for (int64_t d0 = 0; d0 < s.depth.count; d0 += s.depths)
      for (int64_t m0 = 0; m0 < p.m; m0 += s.rows) {
        const int64_t d1 = std::min(d0 + s.depths, s.depth.count);
        for (int64_t d = d0; d < d1; ++d) multiply_piece(p, s, m0, n0, std::min(s.columns, p.n - n0), {d, d0, d1}, scratch);
      }
}

}  // namespace

bool can_multiply() { return __builtin_cpu_supports("avx512f"); }
bool should_multiply() { return can_multiply() && !__builtin_cpu_is("intel"); }
bool can_multiply_bfloat16() { return can_multiply() && __builtin_cpu_supports("avx512bf16"); }
bool should_multiply_bfloat16() { return can_multiply_bfloat16() && !__builtin_cpu_is("intel"); }

int64_t scratch_floats(const Product& p) { return scratch_of(p); }
int64_t scratch_floats(const BFloat16Product& p) { return scratch_of(p); }
void multiply(const Product& p, float* scratch) { multiply_all(p, scratch); }
void multiply(const BFloat16Product& p, float* scratch) { multiply_all(p, scratch); }

#else

bool can_multiply() { return false; }
bool should_multiply() { return false; }
bool can_multiply_bfloat16() { return false; }
bool should_multiply_bfloat16() { return false; }
int64_t scratch_floats(const Product&) { return 0; }
int64_t scratch_floats(const BFloat16Product&) { return 0; }
void multiply(const Product&, float*) {}
void multiply(const BFloat16Product&, float*) {}

#endif

}  // namespace plait::detail
