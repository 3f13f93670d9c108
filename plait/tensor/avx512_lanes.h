// Sixteen values at a time on AVX-512: float, bfloat16 and half in memory, fp32 in registers, and the exponential of the own loops. Included
// only by kernel files (see vectorize.h), which call into it from functions marked PLAIT_AVX512, once avx512_available() says so.
#pragma once

#include <cstdint>

#include "plait/tensor/exp_kernels.h"

#if defined(__x86_64__)
// GCC 12 says these of its own _mm512_undefined_ps().
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define PLAIT_AVX512 __attribute__((target("avx512f")))
#define PLAIT_AVX512_INLINE inline __attribute__((always_inline, target("avx512f")))

namespace plait::detail {

constexpr int64_t kAvx512Lanes = 16;

inline bool avx512_available() { return __builtin_cpu_supports("avx512f"); }

PLAIT_AVX512_INLINE __m512 load_lanes(const float* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
PLAIT_AVX512_INLINE __m512i load_words(const uint16_t* p, __mmask16 mask) {
  if (mask == 0xffff) return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  alignas(32) uint16_t words[kAvx512Lanes] = {};
  for (int i = 0; i < kAvx512Lanes && (mask >> i & 1); ++i) words[i] = p[i];
  return _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(words)));
}
PLAIT_AVX512_INLINE void store_words(uint16_t* p, __m256i words, __mmask16 mask) {
  if (mask == 0xffff) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
  alignas(32) uint16_t all[kAvx512Lanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(all), words);
  for (int i = 0; i < kAvx512Lanes && (mask >> i & 1); ++i) p[i] = all[i];
}
PLAIT_AVX512_INLINE __m512 load_lanes(const BFloat16Bits* p, __mmask16 mask) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(load_words(&p->bits, mask), 16));
}
PLAIT_AVX512_INLINE __m512 load_lanes(const Float16Bits* p, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(load_words(&p->bits, mask)));
}
PLAIT_AVX512_INLINE void store_lanes(float* p, __m512 x, __mmask16 mask) { _mm512_mask_storeu_ps(p, mask, x); }
PLAIT_AVX512_INLINE void store_lanes(BFloat16Bits* p, __m512 x, __mmask16 mask) {
  const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0));
  store_words(&p->bits, _mm512_cvtepi32_epi16(rounded), mask);
}
PLAIT_AVX512_INLINE void store_lanes(Float16Bits* p, __m512 x, __mmask16 mask) {
  store_words(&p->bits, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), mask);
}

PLAIT_AVX512_INLINE __mmask16 lanes_left(int64_t n) { return n >= kAvx512Lanes ? 0xffff : static_cast<__mmask16>((1u << n) - 1); }

// As the scalar one of exp_kernels.cpp, with fused multiply-adds: they differ in the last bits. NaN stays NaN.
PLAIT_AVX512_INLINE __m512 exponentials(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-87.0f), x);
  x = _mm512_min_ps(_mm512_set1_ps(88.0f), x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
  return _mm512_scalef_ps(p, n);
}

PLAIT_AVX512_INLINE __m512 logistics(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  return _mm512_div_ps(one, _mm512_add_ps(one, exponentials(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

}  // namespace plait::detail

#endif
