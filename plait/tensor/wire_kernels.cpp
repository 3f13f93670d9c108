#include "plait/tensor/wire_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "plait/tensor/vectorize.h"

namespace plait::detail {

namespace {

// A small binary format: kMantissa bits, exponent bias kBias; kTop = the (unbiased) exponent given to a block's largest element.
struct Half {
  using Bits = uint16_t;
  static constexpr int kMantissa = 10, kBias = 15, kTop = 14;
  static constexpr uint32_t kLargestFraction = 0x7fffff;  // of an element at kTop: all fit
};
struct E4M3 {
  using Bits = uint8_t;
  static constexpr int kMantissa = 3, kBias = 7, kTop = 8;
  static constexpr uint32_t kLargestFraction = 0x600000;  // 448 = 1.75 x 2^8
};

// |x| at most the format's largest number.
template <class F>
PLAIT_KERNEL typename F::Bits to_bits(float x) {
  constexpr int kShift = 23 - F::kMantissa;
  // The number whose last bit weighs as much as the format's smallest: adding it rounds there.
  constexpr float kRounder = std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - F::kBias - F::kMantissa + 23) << 23);
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - F::kBias) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 31) << (sizeof(typename F::Bits) * 8 - 1);
  const uint32_t normal =
      (magnitude + ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1) - (static_cast<uint32_t>(127 - F::kBias) << 23)) >> kShift;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + kRounder) - std::bit_cast<uint32_t>(kRounder);
  return static_cast<typename F::Bits>(sign | (magnitude < kSmallestNormal ? small : normal));
}

template <class F>
PLAIT_KERNEL float from_bits(typename F::Bits coded) {
  constexpr int kShift = 23 - F::kMantissa, kWidth = static_cast<int>(sizeof(typename F::Bits)) * 8;
  constexpr float kSmallest = std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - F::kBias - F::kMantissa) << 23);
  const uint32_t bits = coded, magnitude = bits & ((1u << (kWidth - 1)) - 1), sign = (bits >> (kWidth - 1)) << 31;
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * kSmallest;
  const uint32_t normal = (magnitude << kShift) + (static_cast<uint32_t>(127 - F::kBias) << 23);
  const uint32_t chosen = magnitude < (1u << F::kMantissa) ? std::bit_cast<uint32_t>(small) : normal;
  return std::bit_cast<float>(chosen | sign);
}

// The biased exponent of the block's scale.
template <class F>
uint8_t scale_of(uint32_t largest) {
  if (largest >= 0x7f800000u) return kNonFiniteBlock;
  int exponent = static_cast<int>(largest >> 23) - F::kTop + ((largest & 0x7fffffu) > F::kLargestFraction ? 1 : 0);
  return static_cast<uint8_t>(std::max(exponent, 1));
}

PLAIT_KERNEL float power_of_two(uint32_t biased) { return std::bit_cast<float>(biased << 23); }

template <class F>
PLAIT_KERNEL void encode_all(const float* values, int64_t n, typename F::Bits* payload, uint8_t* scales) {
  for (int64_t begin = 0; begin < n; begin += kWireBlock) {
    const int64_t count = std::min(kWireBlock, n - begin);
    const float* x = values + begin;
    typename F::Bits* out = payload + begin;
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    const uint8_t scale = scale_of<F>(largest);
    *scales++ = scale;
    if (scale == kNonFiniteBlock) {
      std::fill(out, out + count, typename F::Bits{0});
      continue;
    }
    const float inverse = power_of_two(254u - scale);
    for (int64_t i = 0; i < count; ++i) out[i] = to_bits<F>(x[i] * inverse);
  }
}

template <class F>
PLAIT_KERNEL void decode_all(const typename F::Bits* payload, const uint8_t* scales, int64_t n, float* values) {
  for (int64_t begin = 0; begin < n; begin += kWireBlock) {
    const int64_t count = std::min(kWireBlock, n - begin);
    const uint8_t scale = *scales++;
    const float factor = scale == kNonFiniteBlock ? NAN : power_of_two(scale);
    for (int64_t i = 0; i < count; ++i) values[begin + i] = from_bits<F>(payload[begin + i]) * factor;
  }
}

template <class Scalar>
PLAIT_KERNEL void product(const Scalar* left, const Scalar* right, int64_t n, int64_t m, int64_t rank, Scalar* out) {
  for (int64_t i = 0; i < n; ++i) {
    Scalar* row = out + i * m;
    for (int64_t j = 0; j < m; ++j) row[j] = left[i * rank] * right[j];
    for (int64_t k = 1; k < rank; ++k) {
      const Scalar factor = left[i * rank + k];
      const Scalar* line = right + k * m;
      for (int64_t j = 0; j < m; ++j) row[j] += factor * line[j];
    }
  }
}

}  // namespace

void encode_float16(const float* values, int64_t n, uint16_t* payload, uint8_t* scales) {
  run_vectorized([=]() PLAIT_KERNEL_LAMBDA { encode_all<Half>(values, n, payload, scales); });
}

void encode_float8(const float* values, int64_t n, uint8_t* payload, uint8_t* scales) {
  run_vectorized([=]() PLAIT_KERNEL_LAMBDA { encode_all<E4M3>(values, n, payload, scales); });
}

void decode_float16(const uint16_t* payload, const uint8_t* scales, int64_t n, float* values) {
  run_vectorized([=]() PLAIT_KERNEL_LAMBDA { decode_all<Half>(payload, scales, n, values); });
}

void decode_float8(const uint8_t* payload, const uint8_t* scales, int64_t n, float* values) {
  run_vectorized([=]() PLAIT_KERNEL_LAMBDA { decode_all<E4M3>(payload, scales, n, values); });
}

void low_rank_product(const float* left, const float* right, int64_t n, int64_t m, int64_t rank, float* out) {
  run_vectorized([=]() PLAIT_KERNEL_LAMBDA { product(left, right, n, m, rank, out); });
}

void low_rank_product(const double* left, const double* right, int64_t n, int64_t m, int64_t rank, double* out) {
  run_vectorized([=]() PLAIT_KERNEL_LAMBDA { product(left, right, n, m, rank, out); });
}

}  // namespace plait::detail
