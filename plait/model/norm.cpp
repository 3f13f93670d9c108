#include "plait/model/norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace plait {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType statistics_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

struct RmsResult {
  at::Tensor y, inverse_rms;  // [T, H], [T, 1]
};

template <class Scalar>
void rms_forward_rows(const Scalar* x, const Scalar* weight, double eps, int64_t rows, int64_t width, Scalar* y, Scalar* inverse_rms) {
  for (int64_t t = 0; t < rows; ++t) {
    const Scalar* xt = x + t * width;
    Scalar* yt = y + t * width;
    Scalar sum = 0;
    for (int64_t j = 0; j < width; ++j) sum += xt[j] * xt[j];
    Scalar r = static_cast<Scalar>(1.0 / std::sqrt(static_cast<double>(sum) / static_cast<double>(width) + eps));
    inverse_rms[t] = r;
    for (int64_t j = 0; j < width; ++j) yt[j] = xt[j] * r * weight[j];
  }
}

template <class Scalar>
void rms_backward_rows(const Scalar* dy, const Scalar* x, const Scalar* weight, const Scalar* inverse_rms, int64_t rows, int64_t width,
                       Scalar* dx, Scalar* weight_gradient) {
  for (int64_t t = 0; t < rows; ++t) {
    const Scalar *dyt = dy + t * width, *xt = x + t * width;
    Scalar* dxt = dx + t * width;
    Scalar r = inverse_rms[t], dot = 0;
    for (int64_t j = 0; j < width; ++j) {
      dot += dyt[j] * weight[j] * xt[j];
      weight_gradient[j] += dyt[j] * xt[j] * r;
    }
    Scalar k = dot * r * r * r / static_cast<Scalar>(width);
    for (int64_t j = 0; j < width; ++j) dxt[j] = dyt[j] * weight[j] * r - xt[j] * k;
  }
}

bool plain_rows(const at::Tensor& x, const Parameter& weight) {
  return x.is_cpu() && x.is_contiguous() && x.scalar_type() == weight.master.scalar_type();
}

RmsResult rms_forward(const at::Tensor& x, const NormWeights& w) {
  const at::Tensor& weight = w.weight->weight;
  if (plain_rows(x, *w.weight)) {
    RmsResult r{at::empty_like(x), at::empty({x.size(0), 1}, x.options())};
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_forward", [&] {
      rms_forward_rows(x.const_data_ptr<scalar_t>(), weight.const_data_ptr<scalar_t>(), w.eps, x.size(0), x.size(1),
                       r.y.mutable_data_ptr<scalar_t>(), r.inverse_rms.mutable_data_ptr<scalar_t>());
    });
    return r;
  }
  at::Tensor wide = x.to(statistics_type(x));
  at::Tensor inverse_rms = wide.square().mean(-1, true).add_(w.eps).rsqrt_();
  return {(wide * inverse_rms).to(x.scalar_type()) * weight, inverse_rms};
}

at::Tensor rms_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& inverse_rms, const NormWeights& w) {
  at::Tensor gradient = w.weight->gradient;
  const at::Tensor& weight = w.weight->weight;
  if (plain_rows(x, *w.weight)) {
    at::Tensor dx = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_backward", [&] {
      rms_backward_rows(dy.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(), weight.const_data_ptr<scalar_t>(),
                        inverse_rms.const_data_ptr<scalar_t>(), x.size(0), x.size(1), dx.mutable_data_ptr<scalar_t>(),
                        gradient.mutable_data_ptr<scalar_t>());
    });
    return dx;
  }
  auto type = statistics_type(x);
  at::Tensor normed = x.to(type) * inverse_rms, wide = dy.to(type);
  gradient.add_((wide * normed).sum(0));
  at::Tensor g = wide * weight.to(type);
  return ((g - normed * (g * normed).mean(-1, true)) * inverse_rms).to(x.scalar_type());
}

// Weight or bias as layer norm takes it. Beside float32 ones LibTorch keeps the statistics of 16-bit rows in float32 on the CPU too: in float16
// the inverse deviation of a constant row (the fill of a sequence-parallel region, say) is infinite with an eps of 1e-12.
at::Tensor for_layer_norm(const at::Tensor& parameter, const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16) ? parameter.to(at::kFloat) : parameter;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const at::Tensor& x, const NormWeights& w) {
  return at::native_layer_norm(x, {x.size(-1)}, for_layer_norm(w.weight->weight, x), for_layer_norm(w.bias->weight, x), w.eps);
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const NormWeights* w) {
    ctx->saved_data["weights"] = reinterpret_cast<int64_t>(w);
    if (!w->bias) {
      RmsResult r = rms_forward(x, *w);
      ctx->save_for_backward({x, r.inverse_rms});
      return r.y;
    }
    auto [y, mean, rstd] = layer_norm(x, *w);
    ctx->save_for_backward({x, mean, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::NoGradGuard no_grad;
    auto saved = ctx->get_saved_variables();
    auto* w = reinterpret_cast<const NormWeights*>(ctx->saved_data["weights"].toInt());
    at::Tensor dy = grads[0].contiguous(), dx;
    if (w->bias) {
      at::Tensor dw, db;
      std::tie(dx, dw, db) =
          at::native_layer_norm_backward(dy, saved[0], {saved[0].size(-1)}, saved[1], saved[2], for_layer_norm(w->weight->weight, dy),
                                         for_layer_norm(w->bias->weight, dy), {true, true, true});
      w->weight->gradient.add_(dw);
      w->bias->gradient.add_(db);
      w->bias->use_done();
    } else {
      dx = rms_backward(dy, saved[0], saved[1], *w);
    }
    w->weight->use_done();
    return {dx, at::Tensor()};
  }
};

}  // namespace

at::Tensor norm_rows(const at::Tensor& x, const NormWeights& weights) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) {
    if (!weights.bias) return rms_forward(x, weights).y;
    return std::get<0>(layer_norm(x, weights));
  }
  weights.weight->add_use();
  if (weights.bias) weights.bias->add_use();
  return NormFunction::apply(x, &weights);
}

}  // namespace plait
