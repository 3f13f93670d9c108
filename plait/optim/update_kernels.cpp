#include "plait/optim/update_kernels.h"

#include <ATen/Parallel.h>

#include "plait/optim/vectorize.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-math-errno", "fp-contract=off")
#elif defined(__clang__)
#pragma clang fp contract(off)
#endif

namespace plait::detail {
namespace {

#define PLAIT_ALWAYS_INLINE inline __attribute__((always_inline))

PLAIT_ALWAYS_INLINE float root(float x) { return __builtin_sqrtf(x); }
PLAIT_ALWAYS_INLINE double root(double x) { return __builtin_sqrt(x); }

template <class T>
struct AdamWScalars {
  T scale, decay, lerp_coefficient, beta2, one_minus_beta2, eps, step_size, bias2_sqrt;
  bool lerp_from_average;
};

template <class T>
AdamWScalars<T> cast_terms(const AdamWTerms& t) {
  // lerp as ATen: from the nearer end, exact for beta1 = 0.
  double weight = 1.0 - t.beta1;
  bool from_average = weight < 0.5;
  return {T(t.gradient_scale), T(t.decay), T(from_average ? weight : weight - 1.0), T(t.beta2), T(1.0 - t.beta2), T(t.eps),
          T(t.step_size), T(t.bias2_sqrt), from_average};
}

template <bool kFromAverage, class T>
PLAIT_ALWAYS_INLINE void adamw_loop(T* __restrict weight, const T* __restrict gradient, T* __restrict exp_avg,
                                    T* __restrict exp_avg_sq, int64_t n, const AdamWScalars<T>& s) {
  for (int64_t i = 0; i < n; ++i) {
    T g = gradient[i] * s.scale;
    T m = exp_avg[i];
    m = (kFromAverage ? m : g) + s.lerp_coefficient * (g - m);
    T v = exp_avg_sq[i] * s.beta2 + s.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    weight[i] = weight[i] * s.decay - s.step_size * m / (root(v) / s.bias2_sqrt + s.eps);
  }
}

template <bool kMomentum, class T>
PLAIT_ALWAYS_INLINE void sgd_loop(T* __restrict weight, const T* __restrict gradient, T* __restrict buffer, int64_t n, T scale,
                                  T weight_decay, T momentum, T look_ahead, T keep, T lr) {
  for (int64_t i = 0; i < n; ++i) {
    T w = weight[i];
    T g = gradient[i] * scale + weight_decay * w;
    if constexpr (kMomentum) {
      T b = momentum * buffer[i] + g;
      buffer[i] = b;
      g = keep * g + look_ahead * b;  // nesterov: g + momentum b; else: 0 g + 1 b
    }
    weight[i] = w - lr * g;
  }
}

constexpr int64_t kGrain = 32768;  // elements a thread takes at least

template <class T>
void adamw(T* weight, const T* gradient, T* exp_avg, T* exp_avg_sq, int64_t n, const AdamWTerms& terms) {
  const AdamWScalars<T> s = cast_terms<T>(terms);
  at::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    run_vectorized([&]() __attribute__((always_inline)) {
      if (s.lerp_from_average)
        adamw_loop<true>(weight + begin, gradient + begin, exp_avg + begin, exp_avg_sq + begin, end - begin, s);
      else
        adamw_loop<false>(weight + begin, gradient + begin, exp_avg + begin, exp_avg_sq + begin, end - begin, s);
    });
  });
}

template <class T>
void sgd(T* weight, const T* gradient, T* buffer, int64_t n, const SGDTerms& t) {
  const T scale = T(t.gradient_scale), decay = T(t.weight_decay), momentum = T(t.momentum), lr = T(t.lr);
  const T look_ahead = t.nesterov ? momentum : T(1), keep = t.nesterov ? T(1) : T(0);
  at::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    run_vectorized([&]() __attribute__((always_inline)) {
      if (buffer)
        sgd_loop<true>(weight + begin, gradient + begin, buffer + begin, end - begin, scale, decay, momentum, look_ahead, keep, lr);
      else
        sgd_loop<false>(weight + begin, gradient + begin, static_cast<T*>(nullptr), end - begin, scale, decay, momentum, look_ahead,
                        keep, lr);
    });
  });
}

}  // namespace

void adamw_update(float* weight, const float* gradient, float* exp_avg, float* exp_avg_sq, int64_t n, const AdamWTerms& terms) {
  adamw(weight, gradient, exp_avg, exp_avg_sq, n, terms);
}
void adamw_update(double* weight, const double* gradient, double* exp_avg, double* exp_avg_sq, int64_t n, const AdamWTerms& terms) {
  adamw(weight, gradient, exp_avg, exp_avg_sq, n, terms);
}
void sgd_update(float* weight, const float* gradient, float* momentum_buffer, int64_t n, const SGDTerms& terms) {
  sgd(weight, gradient, momentum_buffer, n, terms);
}
void sgd_update(double* weight, const double* gradient, double* momentum_buffer, int64_t n, const SGDTerms& terms) {
  sgd(weight, gradient, momentum_buffer, n, terms);
}

}  // namespace plait::detail

#undef PLAIT_ALWAYS_INLINE
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
