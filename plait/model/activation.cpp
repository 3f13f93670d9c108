#include "plait/model/activation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "plait/base/error.h"

namespace plait {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor apply_activation(const at::Tensor& x, Activation a) {
  switch (a) {
    case Activation::kGelu: return at::gelu(x);
    case Activation::kGeluTanh: return at::gelu(x, "tanh");
    case Activation::kSilu: return at::silu(x);
    case Activation::kRelu: return at::relu(x);
  }
  PLAIT_CHECK(false, "activation");
  return x;
}

at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& x, Activation a) {
  switch (a) {
    case Activation::kGelu: return at::gelu_backward(dy, x);
    case Activation::kGeluTanh: return at::gelu_backward(dy, x, "tanh");
    case Activation::kSilu: return at::silu_backward(dy, x);
    case Activation::kRelu: return at::threshold_backward(dy, x, 0);
  }
  PLAIT_CHECK(false, "activation");
  return dy;
}

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t activation) {
    ctx->save_for_backward({x});
    ctx->saved_data["activation"] = activation;
    int64_t f = x.size(1) / 2;
    return apply_activation(x.narrow(1, 0, f), static_cast<Activation>(activation)).mul_(x.narrow(1, f, f));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::NoGradGuard no_grad;
    at::Tensor x = ctx->get_saved_variables()[0], dy = grads[0];
    auto a = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    int64_t f = x.size(1) / 2;
    at::Tensor gate = x.narrow(1, 0, f), up = x.narrow(1, f, f), dx = at::empty_like(x);
    dx.narrow(1, 0, f).copy_(activation_backward(dy * up, gate, a));
    at::Tensor d_up = dx.narrow(1, f, f);
    at::mul_out(d_up, dy, apply_activation(gate, a));
    return {dx, at::Tensor()};
  }
};

}  // namespace

at::Tensor activate(const at::Tensor& x, Activation activation, bool gated) {
  return gated ? GatedFunction::apply(x, static_cast<int64_t>(activation)) : apply_activation(x, activation);
}

}  // namespace plait
