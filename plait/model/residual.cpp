#include "plait/model/residual.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "plait/base/error.h"

namespace plait {
namespace {

struct SumIntoFunction : torch::autograd::Function<SumIntoFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x, const at::Tensor& y, at::Tensor* out) {
    at::add_out(*out, x, y);
    return *out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list gradients) {
    return {gradients[0], gradients[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor residual_sum(const at::Tensor& x, const at::Tensor& y, const at::Tensor& out) {
  if (!out.defined()) return x + y;
  PLAIT_CHECK(out.sizes() == x.sizes() && out.scalar_type() == x.scalar_type() && y.sizes() == x.sizes(), "residual sum");
  at::Tensor sum = out;
  return SumIntoFunction::apply(x, y, &sum);  // a pointer: to autograd it is no operand
}

}  // namespace plait
