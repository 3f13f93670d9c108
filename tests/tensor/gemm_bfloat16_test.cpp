// Products of bfloat16 against sums in fp64: all rests of rows, columns and depth, every order in memory, results in float32 and rounded.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "plait/tensor/gemm_kernels.h"

namespace plait::detail {
namespace {

constexpr uint16_t kUntouched = 0x4640;

float value_of(BFloat16Bits x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
BFloat16Bits cut(float x) { return {static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)}; }

enum class Order { kRows, kColumns, kScattered };  // which neighbours lie beside each other in memory
constexpr Order kOrders[] = {Order::kRows, Order::kColumns, Order::kScattered};

// Exactly as much memory as the matrix needs, so that a checker of addresses sees every read beside it.
struct Matrix {
  Matrix(int64_t rows, int64_t columns, Order order, uint32_t seed, int64_t gap = 0) {
    view.row_stride = order == Order::kRows ? columns + gap : order == Order::kColumns ? 1 : 2 * columns + gap;
    view.column_stride = order == Order::kRows ? 1 : order == Order::kColumns ? rows + gap : 2;
    const int64_t last = rows > 0 && columns > 0 ? (rows - 1) * view.row_stride + (columns - 1) * view.column_stride : -1;
    values.assign(static_cast<size_t>(last + 1), {kUntouched});
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        values[static_cast<size_t>(i * view.row_stride + j * view.column_stride)] = cut(uniform(random));
    view.data = values.data();
  }
  float at(int64_t i, int64_t j) const { return value_of(view.data[i * view.row_stride + j * view.column_stride]); }
  std::vector<BFloat16Bits> values;
  MatrixViewOf<BFloat16Bits> view;
};

void run(const BFloat16Product& p) {
  const auto bytes = static_cast<size_t>((scratch_floats(p) * 4 + 63) / 64 * 64);
  std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, bytes), &std::free);
  std::fill_n(static_cast<float*>(scratch.get()), bytes / 4, std::numeric_limits<float>::quiet_NaN());
  multiply(p, static_cast<float*>(scratch.get()));
}

struct Case {
  int64_t m, n, k;
  Order a = Order::kRows, b = Order::kRows;
  bool bias = false, accumulate = false;
  int64_t gap = 0;
};

::testing::AssertionResult wrong(const Case& t, int64_t i, int64_t j, double got, double wanted) {
  return ::testing::AssertionFailure() << t.m << " x " << t.n << " x " << t.k << " at " << i << ", " << j << ": " << got << ", not "
                                       << wanted;
}

// Both results, and that nothing beside C is written.
::testing::AssertionResult right(const Case& t) {
  const Matrix a(t.m, t.k, t.a, 1, t.gap), b(t.k, t.n, t.b, 2, t.gap);
  const int64_t stride = t.n + t.gap + 1;
  std::vector<float> bias(static_cast<size_t>(t.n), 0.75f), c(static_cast<size_t>(t.m * stride), 0.5f);
  std::vector<BFloat16Bits> rounded(static_cast<size_t>(t.m * stride), {kUntouched});
  const float* added = t.bias ? bias.data() : nullptr;
  run({t.m, t.n, t.k, a.view, b.view, c.data(), stride, added, t.accumulate});
  run({t.m, t.n, t.k, a.view, b.view, nullptr, stride, added, false, rounded.data()});
  for (int64_t i = 0; i < t.m; ++i)
    for (int64_t j = 0; j < stride; ++j) {
      const auto at = static_cast<size_t>(i * stride + j);
      if (j >= t.n) {
        if (c[at] != 0.5f || rounded[at].bits != kUntouched) return ::testing::AssertionFailure() << "written beside C";
        continue;
      }
      double sum = t.bias ? 0.75 : 0;
      for (int64_t k = 0; k < t.k; ++k) sum += double{a.at(i, k)} * double{b.at(k, j)};
      const double whole = sum + (t.accumulate ? 0.5 : 0), near = 4e-6 * (1 + std::sqrt(static_cast<double>(t.k)));
      if (!(std::abs(c[at] - whole) <= near)) return wrong(t, i, j, c[at], whole);
      const double half = value_of(rounded[at]);
      if (!(std::abs(half - sum) <= near + std::abs(sum) / 256)) return wrong(t, i, j, half, sum);
    }
  return ::testing::AssertionSuccess();
}

class GemmBFloat16 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_multiply_bfloat16()) GTEST_SKIP() << "no AVX512_BF16 here";
  }
};

TEST_F(GemmBFloat16, EveryRestOfRowsAndColumns) {
  for (int64_t m = 0; m <= 31; ++m)
    for (int64_t n = 0; n <= 67; ++n) ASSERT_TRUE(right({m, n, 5 + (m + n) % 3}));
}

TEST_F(GemmBFloat16, EveryDepthAndOrder) {
  for (int64_t k = 0; k <= 70; ++k)
    for (Order a : kOrders)
      for (Order b : kOrders) ASSERT_TRUE(right({17, 35, k, a, b, k % 2 == 0, k % 3 == 0, k % 4}));
}

// Several blocks of rows, of columns and of K, with and without an odd last one.
TEST_F(GemmBFloat16, LargeSizes) {
  for (int64_t k : {1023, 1024, 1025, 2051, 4099}) ASSERT_TRUE(right({15, 33, k, Order::kColumns, Order::kColumns, true, true}));
  ASSERT_TRUE(right({500, 300, 700, Order::kRows, Order::kColumns, true}));
  ASSERT_TRUE(right({300, 70, 3201, Order::kColumns, Order::kRows, false, true}));
  ASSERT_TRUE(right({230, 1100, 2050, Order::kColumns, Order::kRows, true, true, 5}));
}

// A result between two bfloat16 goes to the nearer, a tie to the even one; infinity and NaN go through.
TEST_F(GemmBFloat16, RoundsOnce) {
  const float infinity = std::numeric_limits<float>::infinity();
  auto rounded = [&](float a, float bias) {
    BFloat16Bits x[2] = {cut(a), {}}, y[2] = {cut(1.0f), {}}, c{};
    run({1, 1, 2, {x, 2, 1}, {y, 1, 1}, nullptr, 1, &bias, false, &c});
    return c;
  };
  EXPECT_EQ(rounded(1.0f, 0x1p-8f).bits, cut(1.0f).bits);                      // a tie: 1 is even
  EXPECT_EQ(rounded(1.0f, 0x1.02p-8f).bits, cut(1.0f + 0x1p-7f).bits);         // above it
  EXPECT_EQ(rounded(1.0f, 0x1p-7f + 0x1p-8f).bits, cut(1.0f + 0x1p-6f).bits);  // a tie: up
  EXPECT_EQ(value_of(rounded(infinity, 0.0f)), infinity);
  EXPECT_TRUE(std::isnan(value_of(rounded(infinity, -infinity))));
}

TEST_F(GemmBFloat16, PiecesHaveTheBitsOfTheWhole) {
  constexpr int64_t kM = 241, kN = 103, kK = 1500;
  for (Order order : kOrders) {
    const Matrix a(kM, kK, order, 1), b(kK, kN, order, 2);
    std::vector<BFloat16Bits> whole(kM * kN), cut_in_pieces(kM * kN);
    run({kM, kN, kK, a.view, b.view, nullptr, kN, nullptr, false, whole.data()});
    for (int64_t from = 0, rows = 1; from < kM; from += rows, rows = rows * 2 + 1)
      for (int64_t first = 0; first < kN; first += 40) {
        MatrixViewOf<BFloat16Bits> some = a.view, others = b.view;
        some.data += from * some.row_stride;
        others.data += first * others.column_stride;
        run({std::min(rows, kM - from), std::min<int64_t>(40, kN - first), kK, some, others, nullptr, kN, nullptr, false,
             cut_in_pieces.data() + from * kN + first});
      }
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i].bits, cut_in_pieces[i].bits) << i;
  }
}

TEST_F(GemmBFloat16, NeedsLittleScratch) {
  for (int64_t n : {1, 100, 3000, 50257, 200000})
    for (int64_t k : {1, 100, 1025, 8192, 32768}) {
      BFloat16Bits c;
      EXPECT_LE(scratch_floats(BFloat16Product{4096, n, k, {}, {}, nullptr, n, nullptr, false, &c}), 1'700'000) << n << " " << k;
      EXPECT_LE(scratch_floats(BFloat16Product{4096, n, k, {}, {}, nullptr, n}), 1'200'000) << n << " " << k;
    }
}

}  // namespace
}  // namespace plait::detail
