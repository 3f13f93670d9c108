// run_vectorized: runs a plain elementwise loop compiled for the widest vector unit this processor has (chosen at run time, so one
// binary serves all). The loop's arithmetic must be compiled with -ffp-contract=off (the pragma in the .cpp): every element is then
// rounded the same way wherever it lies in memory and whatever the vector width, which keeps copies of a parameter bit-equal.
#pragma once

namespace plait::detail {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
template <class Body>
[[gnu::target("avx512f")]] void run_avx512(const Body& body) {
  body();
}
template <class Body>
[[gnu::target("avx2")]] void run_avx2(const Body& body) {
  body();
}
// `body` and all it calls must be always_inline.
template <class Body>
void run_vectorized(const Body& body) {
  if (__builtin_cpu_supports("avx512f")) return run_avx512(body);
  if (__builtin_cpu_supports("avx2")) return run_avx2(body);
  body();
}
#else
template <class Body>
void run_vectorized(const Body& body) {
  body();
}
#endif

}  // namespace plait::detail
