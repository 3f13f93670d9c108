// The own loops against the same formulas in fp64, at their edges, and against the same values at other places of the vector.
#include "plait/tensor/exp_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace plait::detail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// From -30 to 30, a size that leaves a rest behind the vectors.
std::vector<float> spread(int64_t n = 10007) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = -30.0f + 60.0f * static_cast<float>(i) / static_cast<float>(n - 1);
  return x;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double silu(double x) { return x / (1 + std::exp(-x)); }
double slope(double (*f)(double), double x) { return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5; }

TEST(ExpKernels, GeluTanhAndItsSlope) {
  std::vector<float> x = spread(), y(x.size()), dy(x.size(), 2.0f), dx(x.size());
  gelu_tanh(x.data(), y.data(), static_cast<int64_t>(x.size()));
  gelu_tanh_backward(dy.data(), x.data(), dx.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(y[i], gelu(x[i]), 2e-6 * std::max(1.0f, std::abs(x[i]))) << x[i];
    EXPECT_NEAR(dx[i], 2 * slope(gelu, x[i]), 2e-6) << x[i];
  }
}

TEST(ExpKernels, GatedSiluAndItsSlopes) {
  constexpr int64_t kRows = 7, kWidth = 331;
  std::vector<float> x = spread(kRows * 2 * kWidth), y(kRows * kWidth), dy(y.size(), 0.5f), dx(x.size());
  gated_silu(x.data(), y.data(), kRows, kWidth);
  gated_silu_backward(dy.data(), x.data(), dx.data(), kRows, kWidth);
  for (int64_t t = 0; t < kRows; ++t)
    for (int64_t j = 0; j < kWidth; ++j) {
      size_t gate = static_cast<size_t>(2 * t * kWidth + j), up = gate + kWidth, out = static_cast<size_t>(t * kWidth + j);
      double wanted = silu(x[gate]) * x[up];
      EXPECT_NEAR(y[out], wanted, 1e-6 * std::max(1.0, std::abs(wanted)));
      EXPECT_NEAR(dx[up], 0.5 * silu(x[gate]), 1e-6 * std::max(1.0f, std::abs(x[gate])));
      EXPECT_NEAR(dx[gate], 0.5 * x[up] * slope(silu, x[gate]), 2e-6 * std::max(1.0f, std::abs(x[up])));
    }
}

BFloat16Bits narrow(float x) {
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + 0x7fffu + ((std::bit_cast<uint32_t>(x) >> 16) & 1u)) >> 16)};
}
float widen(BFloat16Bits x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

TEST(ExpKernels, BFloat16IsTheFloatResultRounded) {
  constexpr int64_t kSize = 1001;
  std::vector<float> x = spread(2 * kSize), y(2 * kSize), dy(2 * kSize, 0.5f), dx(2 * kSize);
  std::vector<BFloat16Bits> bx(x.size()), by(x.size()), bdy(x.size(), narrow(0.5f)), bdx(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    bx[i] = narrow(x[i]);
    x[i] = widen(bx[i]);
  }
  auto expect_rounded = [](const std::vector<float>& wide, const std::vector<BFloat16Bits>& bits, size_t n) {
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(bits[i].bits, narrow(wide[i]).bits) << i;
  };
  gelu_tanh(x.data(), y.data(), 2 * kSize);
  gelu_tanh(bx.data(), by.data(), 2 * kSize);
  expect_rounded(y, by, y.size());
  gelu_tanh_backward(dy.data(), x.data(), dx.data(), 2 * kSize);
  gelu_tanh_backward(bdy.data(), bx.data(), bdx.data(), 2 * kSize);
  expect_rounded(dx, bdx, dx.size());
  gated_silu(x.data(), y.data(), 1, kSize);
  gated_silu(bx.data(), by.data(), 1, kSize);
  expect_rounded(y, by, kSize);
  gated_silu_backward(dy.data(), x.data(), dx.data(), 1, kSize);
  gated_silu_backward(bdy.data(), bx.data(), bdx.data(), 1, kSize);
  expect_rounded(dx, bdx, dx.size());
  bx[3] = {0x7fff};  // a NaN that rounding would carry into the sign
  gelu_tanh(bx.data(), by.data(), 17);
  EXPECT_TRUE(std::isnan(widen(by[3])));
}

TEST(ExpKernels, SoftmaxOfRowsInPlace) {
  for (int64_t width : {1, 15, 16, 17, 61, 4096, 9001}) {
    constexpr int64_t kRows = 3;
    std::vector<float> x = spread(kRows * width), e = x, top(kRows), sums(kRows);
    row_largest(x.data(), top.data(), kRows, width);
    row_exponentials(e.data(), top.data(), e.data(), sums.data(), kRows, width);
    for (int64_t t = 0; t < kRows; ++t) {
      double sum = 0;
      for (int64_t j = 0; j < width; ++j) {
        size_t i = static_cast<size_t>(t * width + j);
        EXPECT_LE(x[i], top[static_cast<size_t>(t)]);
        double wanted = std::exp(static_cast<double>(x[i]) - static_cast<double>(top[static_cast<size_t>(t)]));
        EXPECT_NEAR(e[i], wanted, 3e-7 * wanted + 1e-37);
        sum += wanted;
      }
      EXPECT_NEAR(sums[static_cast<size_t>(t)], sum, 1e-6 * sum) << width;
    }
  }
}

TEST(ExpKernels, NonFiniteValuesStayVisible) {
  for (float bad : {kNaN, kInfinity}) {
    for (size_t place : {size_t{0}, size_t{5}, size_t{40}}) {
      std::vector<float> x(41, 1.0f), top(1), sums(1), y(41);
      x[place] = bad;
      row_largest(x.data(), top.data(), 1, 41);
      row_exponentials(x.data(), top.data(), y.data(), sums.data(), 1, 41);
      EXPECT_FALSE(std::isfinite(sums[0])) << bad << " at " << place;
      gelu_tanh(x.data(), y.data(), 41);
      EXPECT_FALSE(std::isfinite(y[place])) << bad << " at " << place;
    }
  }
}

TEST(ExpKernels, LargeArgumentsNeitherOverflowNorVanish) {
  std::vector<float> x = {-1e6f, -200.0f, 200.0f, 1e6f}, y(4), dy(4, 1.0f), dx(4);
  gelu_tanh(x.data(), y.data(), 4);
  gelu_tanh_backward(dy.data(), x.data(), dx.data(), 4);
  EXPECT_NEAR(y[0], 0.0f, 1e-30);
  EXPECT_EQ(y[2], 200.0f);
  EXPECT_EQ(y[3], 1e6f);
  EXPECT_NEAR(dx[0], 0.0f, 1e-15);
  EXPECT_NEAR(dx[3], 1.0f, 1e-15);
}

TEST(ExpKernels, AValueDoesNotDependOnItsPlace) {
  std::vector<float> x = spread(64), y(64), one(1);
  gelu_tanh(x.data(), y.data(), 64);
  for (size_t i = 0; i < 64; ++i) {
    gelu_tanh(&x[i], one.data(), 1);
    EXPECT_EQ(one[0], y[i]) << i;
  }
}

}  // namespace
}  // namespace plait::detail
