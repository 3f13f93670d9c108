// The products of the layers: types, views, threads, and what does not fit.
#include "plait/tensor/matrix_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "plait/tensor/gemm_kernels.h"

namespace plait {
namespace {

bool close(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  return got.sizes() == wanted.sizes() && at::allclose(got.to(at::kDouble), wanted.to(at::kDouble), tolerance, tolerance);
}

// The three products of a linear layer, in each type, against fp64.
TEST(MatrixProduct, ForwardAndBothBackwards) {
  at::manual_seed(1);
  at::Tensor x = at::randn({45, 70}, at::kDouble), w = at::randn({51, 70}, at::kDouble), bias = at::randn({51}, at::kDouble);
  at::Tensor dy = at::randn({45, 51}, at::kDouble);
  for (auto [type, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 2e-5}, {at::kBFloat16, 0.3}, {at::kHalf, 0.05}}) {
    at::Tensor xt = x.to(type), wt = w.to(type), bt = bias.to(type), dyt = dy.to(type);
    EXPECT_TRUE(close(matrix_product(xt, wt.t(), bt), at::addmm(bias, x, w.t()), tolerance)) << type;
    EXPECT_TRUE(close(matrix_product(dyt, wt), at::mm(dy, w), tolerance)) << type;
    at::Tensor sum = at::ones({51, 70}, type == at::kDouble ? at::kDouble : at::kFloat), own = at::ones({51, 70}, type);
    add_matrix_product(sum, dyt.t(), xt);
    add_matrix_product(own, dyt.t(), xt);
    EXPECT_TRUE(close(sum, at::mm(dy.t(), x).add_(1), tolerance)) << type;
    EXPECT_TRUE(close(own, at::mm(dy.t(), x).add_(1), tolerance)) << type;
    EXPECT_EQ(matrix_product(xt, wt.t()).scalar_type(), type);
  }
}

// Micro-batches whose gradients are small beside the sum: a product rounded to 16 bits before it is added would lose 1 part in 256 of each.
TEST(MatrixProduct, SumsOf16BitsAreWide) {
  if (!detail::should_multiply_bfloat16()) GTEST_SKIP() << "no own bfloat16 products here";
  at::manual_seed(4);
  at::Tensor sum = at::zeros({51, 70}), wanted = at::zeros({51, 70}, at::kDouble);
  for (int i = 0; i < 8; ++i) {
    at::Tensor x = at::randn({45, 70}).to(at::kBFloat16), dy = at::randn({45, 51}).to(at::kBFloat16);
    add_matrix_product(sum, dy.t(), x);
    wanted.addmm_(dy.t().to(at::kDouble), x.to(at::kDouble));
  }
  EXPECT_TRUE(close(sum, wanted, 1e-5));
}

TEST(MatrixProduct, ViewsInAndOut) {
  at::manual_seed(2);
  at::Tensor a = at::randn({60, 80}), b = at::randn({80, 90});
  at::Tensor left = a.slice(0, 3, 50, 2).slice(1, 1, 80, 3), right = b.slice(0, 5, 80, 3).slice(0, 0, left.size(1)).slice(1, 2, 90, 4);
  right = at::cat({right, at::zeros({left.size(1) - right.size(0), right.size(1)})});
  at::Tensor wanted = at::mm(left.to(at::kDouble), right.to(at::kDouble));
  EXPECT_TRUE(close(matrix_product(left, right), wanted, 1e-5));
  at::Tensor frame = at::full({left.size(0) + 2, right.size(1) + 2}, 7.0f);
  matrix_product_into(frame.slice(0, 1, -1).slice(1, 1, -1), left, right);
  EXPECT_TRUE(close(frame.slice(0, 1, -1).slice(1, 1, -1), wanted, 1e-5));
  EXPECT_EQ(frame.eq(7.0f).sum().item<int64_t>(), 2 * (frame.size(0) + frame.size(1)) - 4);
  at::Tensor turned = at::zeros({right.size(1), left.size(0)}).t();  // columns beside each other: not for the kernels
  add_matrix_product(turned, left, right);
  EXPECT_TRUE(close(turned, wanted, 1e-5));
  EXPECT_EQ(matrix_product(at::randn({0, 5}), at::randn({5, 3})).sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(matrix_product(at::randn({4, 0}), at::randn({0, 3}), at::ones({3})).eq(1).all().item<bool>());
}

TEST(MatrixProduct, ThreadsDoNotChangeABit) {
  const int before = at::get_num_threads();
  at::manual_seed(3);
  for (auto [m, n, type] : {std::tuple<int64_t, int64_t, at::ScalarType>{700, 130, at::kFloat},
                            {130, 700, at::kFloat},
                            {700, 130, at::kBFloat16},
                            {130, 700, at::kBFloat16}}) {
    if (type == at::kBFloat16 && !detail::should_multiply_bfloat16()) continue;
    at::Tensor a = at::randn({m, 150}).to(type), b = at::randn({150, n}).to(type), bias = at::randn({n}).to(type);
    at::set_num_threads(1);
    at::Tensor one = matrix_product(a, b, bias), one_sum = one.to(at::kFloat, false, true);
    add_matrix_product(one_sum, a, b);
    at::set_num_threads(3);
    at::Tensor three = matrix_product(a, b, bias), three_sum = three.to(at::kFloat, false, true);
    add_matrix_product(three_sum, a, b);
    at::set_num_threads(before);
    EXPECT_TRUE(close(one, at::addmm(bias, a, b), type == at::kFloat ? 1e-4 : 0.05));
    EXPECT_TRUE(one.equal(three));
    EXPECT_TRUE(one_sum.equal(three_sum));
  }
}

TEST(MatrixProduct, RefusesWhatDoesNotFit) {
  EXPECT_ANY_THROW(matrix_product(at::ones({2, 3}), at::ones({4, 5})));
  EXPECT_ANY_THROW(matrix_product(at::ones({2, 3}), at::ones({3, 5}, at::kDouble)));
  EXPECT_ANY_THROW(matrix_product(at::ones({2, 3}), at::ones({3, 5}), at::ones({4})));
  EXPECT_ANY_THROW(matrix_product(at::ones({3}), at::ones({3, 5})));
  EXPECT_ANY_THROW(add_matrix_product(at::ones({2, 4}), at::ones({2, 3}), at::ones({3, 5})));
}

}  // namespace
}  // namespace plait
