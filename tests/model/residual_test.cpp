// The residual sum: the same numbers and gradients in given memory as anywhere.
#include "plait/model/residual.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "plait/base/error.h"

namespace plait {
namespace {

TEST(Residual, InGivenMemory) {
  for (auto type : {at::kFloat, at::kBFloat16}) {
    at::Tensor a = at::arange(12, at::kFloat).view({3, 4}).div(7).to(type), b = a.mul(3).add(0.3), out = at::zeros({3, 4}, type);
    at::Tensor x = a.clone().requires_grad_(true), y = b.clone().requires_grad_(true);
    at::Tensor sum = residual_sum(x.mul(2), y.mul(5), out);
    EXPECT_EQ(sum.data_ptr(), out.data_ptr());
    EXPECT_TRUE(at::equal(sum, a.mul(2) + b.mul(5)));
    sum.backward(a);
    EXPECT_TRUE(at::equal(x.grad(), a.mul(2)));
    EXPECT_TRUE(at::equal(y.grad(), a.mul(5)));
  }
}

TEST(Residual, InItsOwn) {
  at::Tensor x = at::ones({2, 3}).requires_grad_(true), y = at::ones({2, 3});
  at::Tensor sum = residual_sum(x, y);
  EXPECT_TRUE(at::equal(sum, at::full({2, 3}, 2.0)));
  sum.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::ones({2, 3})));
}

TEST(Residual, MemoryOfAnotherShapeIsABug) { EXPECT_THROW(residual_sum(at::ones({2, 3}), at::ones({2, 3}), at::ones({3, 2})), Error); }

}  // namespace
}  // namespace plait
