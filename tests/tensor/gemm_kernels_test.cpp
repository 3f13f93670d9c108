// Products of all small sizes and some large ones against sums in fp64; the bits of a row in every cut of the product.
#include "plait/tensor/gemm_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace plait::detail {
namespace {

constexpr float kUntouched = 12345.0f;

struct Matrix {
  int64_t rows, columns;
  std::vector<float> values;
  MatrixView view;  // of `values`
  float at(int64_t i, int64_t j) const { return view.data[i * view.row_stride + j * view.column_stride]; }
  float& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * view.row_stride + j * view.column_stride)]; }
};

enum class Order { kRows, kColumns, kScattered };  // which neighbours lie beside each other in memory
constexpr Order kOrders[] = {Order::kRows, Order::kColumns, Order::kScattered};

Matrix random_matrix(int64_t rows, int64_t columns, Order order, uint32_t seed, int64_t gap = 0) {
  Matrix m{rows, columns, {}, {}};
  m.view.row_stride = order == Order::kRows ? columns + gap : order == Order::kColumns ? 1 : 2 * columns + gap;
  m.view.column_stride = order == Order::kRows ? 1 : order == Order::kColumns ? rows + gap : 2;
  m.values.assign(static_cast<size_t>(std::max<int64_t>(rows * columns, 1) * 2 + (rows + columns) * (gap + 1)), kUntouched);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  m.view.data = m.values.data();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) m.at(i, j) = uniform(random);
  return m;
}

void run(const Product& p) {
  const auto bytes = static_cast<size_t>((scratch_floats(p) * 4 + 63) / 64 * 64);
  std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, bytes), &std::free);
  std::fill_n(static_cast<float*>(scratch.get()), bytes / 4,
              std::numeric_limits<float>::quiet_NaN());  // nothing of it may be used unwritten
  multiply(p, static_cast<float*>(scratch.get()));
}

struct Case {
  int64_t m, n, k;
  Order a = Order::kRows, b = Order::kRows;
  bool bias = false, accumulate = false;
  int64_t gap = 0;
};

// Against fp64, and that nothing beside C is written.
::testing::AssertionResult right(const Case& t) {
  Matrix a = random_matrix(t.m, t.k, t.a, 1, t.gap), b = random_matrix(t.k, t.n, t.b, 2, t.gap),
         c = random_matrix(t.m, t.n, Order::kRows, 3, t.gap + 1);
  Matrix before = c, bias = random_matrix(1, t.n, Order::kRows, 4);
  run({t.m, t.n, t.k, a.view, b.view, c.values.data(), c.view.row_stride, t.bias ? bias.values.data() : nullptr, t.accumulate});
  for (int64_t i = 0; i < t.m; ++i)
    for (int64_t j = 0; j < t.n; ++j) {
      double sum =
          (t.accumulate ? double{before.values[static_cast<size_t>(i * c.view.row_stride + j)]} : 0) + (t.bias ? double{bias.at(0, j)} : 0);
      for (int64_t k = 0; k < t.k; ++k) sum += double{std::as_const(a).at(i, k)} * double{std::as_const(b).at(k, j)};
      float got = c.values[static_cast<size_t>(i * c.view.row_stride + j)];
      if (!(std::abs(got - sum) <= 4e-6 * (1 + std::sqrt(static_cast<double>(t.k)))))
        return ::testing::AssertionFailure() << t.m << " x " << t.n << " x " << t.k << " at " << i << ", " << j << ": " << got << ", not "
                                             << sum;
      before.values[static_cast<size_t>(i * c.view.row_stride + j)] = got;
    }
  if (before.values != c.values) return ::testing::AssertionFailure() << t.m << " x " << t.n << " x " << t.k << ": written beside C";
  return ::testing::AssertionSuccess();
}

class GemmKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_multiply()) GTEST_SKIP() << "no AVX-512 here";
  }
};

TEST_F(GemmKernels, EveryRestOfRowsAndColumns) {
  for (int64_t m = 0; m <= 31; ++m)
    for (int64_t n = 0; n <= 67; ++n) ASSERT_TRUE(right({m, n, 5 + (m + n) % 3}));
}

TEST_F(GemmKernels, EveryDepth) {
  for (int64_t k = 0; k <= 40; ++k)
    for (Order a : kOrders)
      for (Order b : kOrders) ASSERT_TRUE(right({17, 35, k, a, b, k % 2 == 0, k % 3 == 0, k % 4}));
  for (int64_t k : {511, 512, 513, 1000, 1025, 4099}) ASSERT_TRUE(right({15, 33, k, Order::kColumns, Order::kColumns, true, true}));
}

TEST_F(GemmKernels, StridesBiasAndAccumulation) {
  for (Order a : kOrders)
    for (Order b : kOrders)
      for (int choice = 0; choice < 8; ++choice)
        for (auto [m, n] : {std::pair<int64_t, int64_t>{13, 31}, {14, 32}, {29, 49}})
          ASSERT_TRUE(right({m, n, 37, a, b, (choice & 1) != 0, (choice & 2) != 0, (choice & 4) ? 3 : 0}));
}

// Several blocks of rows, of columns, of K, and more columns than are packed at once.
TEST_F(GemmKernels, LargeSizes) {
  ASSERT_TRUE(right({500, 300, 700, Order::kRows, Order::kColumns, true}));
  ASSERT_TRUE(right({300, 70, 1600, Order::kColumns, Order::kRows, false, true}));
  ASSERT_TRUE(right({230, 2100, 513, Order::kRows, Order::kColumns, true, true}));
  ASSERT_TRUE(right({230, 1100, 1025, Order::kColumns, Order::kRows, true, true, 5}));
}

TEST_F(GemmKernels, NeedsLittleScratch) {
  for (int64_t n : {1, 100, 3000, 50257, 200000})
    for (int64_t k : {1, 100, 513, 4096, 100000})
      EXPECT_LE(scratch_floats(Product{4096, n, k, {}, {}, nullptr, n}), 1'200'000) << n << " " << k;
}

// Rows and columns computed alone are bit-equal to those of the whole product.
TEST_F(GemmKernels, PiecesHaveTheBitsOfTheWhole) {
  constexpr int64_t kM = 241, kN = 103;
  for (int64_t depth : {33, 700})
    for (Order order : kOrders) {
      Matrix a = random_matrix(kM, depth, order, 5), b = random_matrix(depth, kN, order, 6);
      std::vector<float> bias(kN, 0.3f), whole(kM * kN, 0.1f);
      run({kM, kN, depth, a.view, b.view, whole.data(), kN, bias.data(), true});
      for (int64_t rows : {1, 3, 14, 20, 100}) {
        std::vector<float> c(kM * kN, 0.1f);
        for (int64_t i = 0; i < kM; i += rows)
          run({std::min(rows, kM - i),
               kN,
               depth,
               {a.view.data + i * a.view.row_stride, a.view.row_stride, a.view.column_stride},
               b.view,
               c.data() + i * kN,
               kN,
               bias.data(),
               true});
        EXPECT_EQ(c, whole) << rows << " rows at a time, depth " << depth;
      }
      for (int64_t columns : {1, 16, 17, 32, 50}) {
        std::vector<float> c(kM * kN, 0.1f);
        for (int64_t j = 0; j < kN; j += columns)
          run({kM,
               std::min(columns, kN - j),
               depth,
               a.view,
               {b.view.data + j * b.view.column_stride, b.view.row_stride, b.view.column_stride},
               c.data() + j,
               kN,
               bias.data() + j,
               true});
        EXPECT_EQ(c, whole) << columns << " columns at a time, depth " << depth;
      }
    }
}

// Zero times NaN or infinity is NaN, in its row or column and nowhere else.
TEST_F(GemmKernels, NaNAndInfinityGoThrough) {
  constexpr int64_t kM = 20, kN = 40, kK = 19;
  for (Order order : kOrders) {
    Matrix a = random_matrix(kM, kK, order, 7), b = random_matrix(kK, kN, order, 8);
    a.at(3, 2) = std::numeric_limits<float>::quiet_NaN();
    b.at(7, 5) = std::numeric_limits<float>::infinity();
    a.at(9, 7) = 0.0f;
    std::vector<float> c(kM * kN);
    run({kM, kN, kK, a.view, b.view, c.data(), kN});
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        float got = c[static_cast<size_t>(i * kN + j)];
        if (i == 3 || (i == 9 && j == 5)) EXPECT_TRUE(std::isnan(got)) << i << ", " << j;
        else if (j == 5) EXPECT_TRUE(std::isinf(got)) << i << ", " << j;
        else EXPECT_TRUE(std::isfinite(got)) << i << ", " << j;
      }
  }
}

}  // namespace
}  // namespace plait::detail
