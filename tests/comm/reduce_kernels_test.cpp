// Sums over ranks against the definition: in rank order, at any address and length, in place, for every type.
#include "plait/comm/reduce_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "plait/base/text.h"

namespace plait {
namespace {

using detail::Reduction;

at::Tensor values_of(int64_t rank, int64_t n, at::ScalarType type) {
  at::Tensor index = at::arange(n, at::kDouble);
  if (c10::isIntegralType(type, false)) return (index * (rank + 3)).remainder(23).to(type);
  return at::sin(index * (rank + 1)).to(type);
}

at::Tensor folded(Reduction reduction, const std::vector<at::Tensor>& inputs, at::ScalarType wide) {
  at::Tensor sum = inputs[0].to(wide);
  for (size_t r = 1; r < inputs.size(); ++r) {
    at::Tensor x = inputs[r].to(wide);
    sum = reduction == Reduction::kSum ? sum + x : reduction == Reduction::kMax ? at::maximum(sum, x) : at::minimum(sum, x);
  }
  return sum.to(inputs[0].scalar_type());
}

TEST(ReduceKernels, EveryTypeLengthAndAddress) {
  for (auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kShort, at::kByte, at::kChar}) {
    const bool is_short = type == at::kBFloat16 || type == at::kHalf;
    for (auto reduction : {Reduction::kSum, Reduction::kMax, Reduction::kMin})
      for (int64_t ranks : {1, 2, 5})
        for (int64_t n : {1, 63, 512, 1999})
          for (int64_t offset : {0, 5}) {
            std::vector<at::Tensor> inputs;
            std::vector<const void*> from;
            for (int64_t r = 0; r < ranks; ++r) {
              inputs.push_back(values_of(r, n + offset, type).narrow(0, offset, n));
              from.push_back(inputs.back().const_data_ptr());
            }
            at::Tensor want = folded(reduction, inputs, is_short ? at::kFloat : type);
            at::Tensor other = at::zeros({n + 8}, type);
            ASSERT_TRUE(detail::reduce_slices(type, reduction, from, {inputs[0].data_ptr(), other.narrow(0, 3, n).data_ptr()}, n));
            const std::string what = cat(c10::toString(type), " ", ranks, " ranks, ", n, " from ", offset);
            EXPECT_TRUE(at::equal(inputs[0], want)) << what;
            EXPECT_TRUE(at::equal(other.narrow(0, 3, n), want)) << what;
            EXPECT_EQ(other.narrow(0, 0, 3).abs().sum().item<double>() + other.narrow(0, 3 + n, 5).abs().sum().item<double>(), 0) << what;
          }
  }
}

// No rank's NaN is lost, whatever the reduction.
TEST(ReduceKernels, NotANumberStays) {
  for (auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (auto reduction : {Reduction::kSum, Reduction::kMax, Reduction::kMin})
      for (int64_t bad = 0; bad < 3; ++bad) {
        std::vector<at::Tensor> inputs;
        std::vector<const void*> from;
        for (int64_t r = 0; r < 3; ++r) {
          inputs.push_back(values_of(r, 700, type));
          if (r == bad) inputs.back().index_put_({at::tensor({5, 650})}, NAN);
          from.push_back(inputs.back().const_data_ptr());
        }
        at::Tensor out = at::zeros({700}, type);
        ASSERT_TRUE(detail::reduce_slices(type, reduction, from, {out.data_ptr()}, 700));
        at::Tensor lost = out.isnan();
        EXPECT_EQ(lost.sum().item<int64_t>(), 2);
        EXPECT_TRUE(lost[5].item<bool>() && lost[650].item<bool>());
      }
}

}  // namespace
}  // namespace plait
