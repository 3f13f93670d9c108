#include "plait/optim/flat_kernels.h"

#include "plait/tensor/vectorize.h"

namespace plait::detail {
namespace {

PLAIT_KERNEL float root(float x) { return __builtin_sqrtf(x); }
PLAIT_KERNEL double root(double x) { return __builtin_sqrt(x); }

template <class T>
struct AdamWScalars {
  T scale, decay, coupled_decay, lerp_coefficient, beta2, one_minus_beta2, eps, step_size, bias2_sqrt;
  bool lerp_from_average;
};

template <class T>
AdamWScalars<T> cast_terms(const AdamWTerms& t) {
  // lerp as ATen: from the nearer end, exact for beta1 = 0.
  double weight = 1.0 - t.beta1;
  bool from_average = weight < 0.5;
  return {T(t.gradient_scale), T(t.decay),       T(t.coupled_decay), T(from_average ? weight : weight - 1.0),
          T(t.beta2),          T(1.0 - t.beta2), T(t.eps),           T(t.step_size),
          T(t.bias2_sqrt),     from_average};
}

template <bool kFromAverage, bool kCoupled, class T>
PLAIT_KERNEL void adamw_loop(T* __restrict weight, const T* __restrict gradient, T* __restrict exp_avg, T* __restrict exp_avg_sq, int64_t n,
                             const AdamWScalars<T>& s) {
  // Copies: through the reference they could alias the arrays, which would forbid vectors.
  const T scale = s.scale, decay = s.decay, coupled_decay = s.coupled_decay, coefficient = s.lerp_coefficient, beta2 = s.beta2,
          rest2 = s.one_minus_beta2;
  const T eps = s.eps, step_size = s.step_size, bias2_sqrt = s.bias2_sqrt;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T g = gradient[i] * scale;
    if constexpr (kCoupled) g = g + coupled_decay * weight[i];
    const T old = exp_avg[i];
    const T m = (kFromAverage ? old : g) + coefficient * (g - old);
    const T v = exp_avg_sq[i] * beta2 + rest2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    weight[i] = weight[i] * decay - step_size * m / (root(v) / bias2_sqrt + eps);
  }
}

template <bool kMomentum, class T>
PLAIT_KERNEL void sgd_loop(T* __restrict weight, const T* __restrict gradient, T* __restrict buffer, int64_t n, T scale, T weight_decay,
                           T momentum, T look_ahead, T keep, T lr) {
#pragma GCC ivdep
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

constexpr int64_t kLanes = 16;

// `plus` of fp64 lanes, then lanes in order: the same whatever the vector width.
template <class T>
PLAIT_KERNEL void square_loop(const T* x, int64_t n, double* result) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      double value = static_cast<double>(x[i + j]);
      lanes[j] += value * value;
    }
  double sum = 0.0;
  for (int64_t j = 0; j < kLanes; ++j) sum += lanes[j];
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  *result = sum;
}

// x * 0 is NaN for infinite and NaN values; the maximum itself would lose a NaN.
template <class T>
PLAIT_KERNEL void absolute_loop(const T* x, int64_t n, double* result) {
  T lanes[kLanes] = {}, taint[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      T value = x[i + j] < T(0) ? -x[i + j] : x[i + j];
      lanes[j] = value > lanes[j] ? value : lanes[j];
      taint[j] += value * T(0);
    }
  double largest = 0.0, tainted = 0.0;
  for (int64_t j = 0; j < kLanes; ++j) {
    largest = lanes[j] > largest ? static_cast<double>(lanes[j]) : largest;
    tainted += static_cast<double>(taint[j]);
  }
  for (; i < n; ++i) {
    T value = x[i] < T(0) ? -x[i] : x[i];
    largest = value > largest ? static_cast<double>(value) : largest;
    tainted += static_cast<double>(value * T(0));
  }
  *result = largest + tainted;
}

template <class T>
void adamw(T* weight, const T* gradient, T* exp_avg, T* exp_avg_sq, int64_t n, const AdamWTerms& terms) {
  const AdamWScalars<T> s = cast_terms<T>(terms);
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA {
    if (s.coupled_decay != T(0)) {
      if (s.lerp_from_average) adamw_loop<true, true>(weight, gradient, exp_avg, exp_avg_sq, n, s);
      else adamw_loop<false, true>(weight, gradient, exp_avg, exp_avg_sq, n, s);
    } else {
      if (s.lerp_from_average) adamw_loop<true, false>(weight, gradient, exp_avg, exp_avg_sq, n, s);
      else adamw_loop<false, false>(weight, gradient, exp_avg, exp_avg_sq, n, s);
    }
  });
}

template <class T>
void sgd(T* weight, const T* gradient, T* buffer, int64_t n, const SGDTerms& t) {
  const T scale = T(t.gradient_scale), decay = T(t.weight_decay), momentum = T(t.momentum), lr = T(t.lr);
  const T look_ahead = t.nesterov ? momentum : T(1), keep = t.nesterov ? T(1) : T(0);
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA {
    if (buffer) sgd_loop<true>(weight, gradient, buffer, n, scale, decay, momentum, look_ahead, keep, lr);
    else sgd_loop<false>(weight, gradient, buffer, n, scale, decay, momentum, look_ahead, keep, lr);
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

double sum_squares(const float* x, int64_t n) {
  double result = 0.0;
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA { square_loop(x, n, &result); });
  return result;
}
double sum_squares(const double* x, int64_t n) {
  double result = 0.0;
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA { square_loop(x, n, &result); });
  return result;
}
double largest_absolute(const float* x, int64_t n) {
  double result = 0.0;
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA { absolute_loop(x, n, &result); });
  return result;
}
double largest_absolute(const double* x, int64_t n) {
  double result = 0.0;
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA { absolute_loop(x, n, &result); });
  return result;
}

}  // namespace plait::detail
