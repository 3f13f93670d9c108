// How the plain loops of this program become vector code: a body marked PLAIT_KERNEL is inlined into run_vectorized(), which compiles it for
// AVX-512, AVX2 and the base instruction set and picks one at run time. Included only by files compiled with the options that
// plait/CMakeLists.txt gives to kernels: no contracted multiply-add, so a result does not depend on the vector width.
#pragma once

// Command-line options only: GCC decides at start whether a square root may set errno (and so cannot be a vector instruction), and its
// optimize pragma does not reach templates.
#ifndef __NO_MATH_ERRNO__
#error "compile this file with -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off"
#endif

#define PLAIT_KERNEL inline __attribute__((always_inline))
#define PLAIT_KERNEL_LAMBDA __attribute__((always_inline))

namespace plait::detail {

#if defined(__x86_64__)
template <class Body>
__attribute__((noinline, target("avx512f"))) void run_avx512(const Body& body) {
  body();
}
template <class Body>
__attribute__((noinline, target("avx2"))) void run_avx2(const Body& body) {
  body();
}
#endif
template <class Body>
void run_vectorized(const Body& body) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return run_avx512(body);
  if (__builtin_cpu_supports("avx2")) return run_avx2(body);
#endif
  body();
}

}  // namespace plait::detail
