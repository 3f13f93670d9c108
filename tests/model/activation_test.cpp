// Activations and norms against their formulas in fp64, values and gradients, at sizes that fill no vector and at the far ends.
#include "plait/model/activation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "plait/base/random.h"
#include "plait/base/text.h"
#include "plait/model/norm.h"

namespace plait {
namespace {

at::Tensor values(at::IntArrayRef sizes, uint64_t salt, double size) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  double* p = x.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i)
    p[i] = size * (static_cast<double>(mix64(salt * 1000003 + static_cast<uint64_t>(i)) >> 11) * 0x1p-52 - 1.0);
  return x;
}

double plain(double x, Activation kind) {
  switch (kind) {
    case Activation::kGelu: return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kRelu: return x > 0 ? x : 0;
  }
  return 0;
}

double slope(double x, Activation kind) {
  double t = 0, a = std::sqrt(2 / std::numbers::pi), s = 1 / (1 + std::exp(-x));
  switch (kind) {
    case Activation::kGelu:
      return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    case Activation::kGeluTanh:
      t = std::tanh(a * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
    case Activation::kSilu: return s * (1 + x * (1 - s));
    case Activation::kRelu: return x > 0 ? 1 : 0;
  }
  return 0;
}

// Scale of an allowed error: eps of the type times the size of what is rounded.
double epsilon(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 1e-14;
    case at::kFloat: return 1e-6;
    case at::kHalf: return 2e-3;
    default: return 1.6e-2;
  }
}

void check(Activation kind, bool gated, at::ScalarType type, int64_t rows, int64_t width, double size) {
  SCOPED_TRACE(
      cat("activation ", static_cast<int>(kind), gated ? " gated " : " ", at::toString(type), " ", rows, "x", width, " up to ", size));
  at::Tensor x = values({rows, gated ? 2 * width : width}, 1, size).to(type), dy = values({rows, width}, 2, 1).to(type);
  at::Tensor leaf = x.clone();
  leaf.requires_grad_(true);
  at::Tensor y = activate(leaf, kind, gated);
  ASSERT_EQ(y.scalar_type(), type);
  ASSERT_EQ(y.size(1), width);
  y.backward(dy);
  at::Tensor in = x.to(at::kDouble), out = y.detach().to(at::kDouble), d = dy.to(at::kDouble), dx = leaf.grad().to(at::kDouble);
  auto in_ = in.accessor<double, 2>(), out_ = out.accessor<double, 2>(), d_ = d.accessor<double, 2>(), dx_ = dx.accessor<double, 2>();
  double bound = epsilon(type) * std::max(1.0, size) * (gated ? std::max(1.0, size) : 1.0), worst = 0, worst_gradient = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i) {
      double v = in_[r][i], up = gated ? in_[r][width + i] : 1.0;
      worst = std::max(worst, std::abs(out_[r][i] - plain(v, kind) * up));
      worst_gradient = std::max(worst_gradient, std::abs(dx_[r][i] - d_[r][i] * slope(v, kind) * up));
      if (gated) worst_gradient = std::max(worst_gradient, std::abs(dx_[r][width + i] - d_[r][i] * plain(v, kind)));
    }
  EXPECT_LE(worst, bound);
  EXPECT_LE(worst_gradient, 2 * bound);
}

TEST(Activation, EqualsTheFormula) {
  for (Activation kind : {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu, Activation::kRelu})
    for (bool gated : {false, true})
      for (auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
        for (double size : {1.0, 6.0, 60.0}) {
          check(kind, gated, type, 3, 7, size);
          check(kind, gated, type, 5, 64, size);
          check(kind, gated, type, 1, 1, size);
        }
}

// More than one thread's share of work.
TEST(Activation, LargeTensor) {
  check(Activation::kGeluTanh, false, at::kFloat, 300, 257, 6.0);
  check(Activation::kSilu, true, at::kFloat, 300, 257, 6.0);
}

// Values no exponential can take stay finite, and infinities and NaN are not hidden.
TEST(Activation, FarEnds) {
  for (bool gated : {false, true})
    for (Activation kind : {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
      at::Tensor x = at::full({2, 16}, 1e4, at::kFloat);
      x[0].fill_(-1e4);
      at::Tensor y = activate(x, kind, gated);
      EXPECT_TRUE(at::isfinite(y).all().item<bool>()) << static_cast<int>(kind);
      EXPECT_LE(y[0].abs().max().item<double>(), 1e-6);
      EXPECT_NEAR(y[1][0].item<double>(), gated ? 1e8 : 1e4, 16);
      x.fill_(std::nan(""));
      EXPECT_TRUE(at::isnan(activate(x, kind, gated)).all().item<bool>()) << static_cast<int>(kind);
    }
}

// norm_rows against the formula written with tensors that autograd follows; gradients of weight and bias land in the parameters.
void check_norm(bool layer_norm, at::ScalarType type, int64_t rows, int64_t width) {
  SCOPED_TRACE(cat(layer_norm ? "LayerNorm " : "RMSNorm ", at::toString(type), " ", rows, "x", width));
  ParameterStore store;
  auto declare = [&](const char* name) {
    Parameter p;
    p.name = name;
    p.global_shape = p.local_shape = {width};
    return &store.declare(std::move(p));
  };
  NormWeights w;
  w.eps = 1e-5;
  w.weight = declare("norm.weight");
  if (layer_norm) w.bias = declare("norm.bias");
  store.allocate(type, at::kCPU);
  w.weight->master.copy_(values({width}, 3, 1));
  if (layer_norm) w.bias->master.copy_(values({width}, 4, 1));
  store.refresh_weights();
  at::Tensor x = values({rows, width}, 5, 3).add_(0.7).to(type), dy = values({rows, width}, 6, 1).to(type);
  at::Tensor own = x.clone(), exact = x.to(at::kDouble).clone(), weight = w.weight->weight.to(at::kDouble).clone();
  at::Tensor bias = layer_norm ? w.bias->weight.to(at::kDouble).clone() : at::zeros({width}, at::kDouble);
  for (at::Tensor* t : {&own, &exact, &weight, &bias}) t->requires_grad_(true);
  at::Tensor centred = layer_norm ? exact - exact.mean(1, true) : exact;
  at::Tensor wanted = centred * (centred.square().mean(1, true) + w.eps).rsqrt() * weight + bias;
  wanted.backward(dy.to(at::kDouble));
  at::Tensor y = norm_rows(own, w);
  ASSERT_EQ(y.scalar_type(), type);
  for (int use = 0; use < 2; ++use) {  // gradients add up over uses
    at::Tensor again = x.clone();
    again.requires_grad_(true);
    norm_rows(again, w).backward(dy);
    EXPECT_LE((again.grad().to(at::kDouble) - exact.grad()).abs().max().item<double>(), 4 * epsilon(type));
  }
  EXPECT_LE((y.detach().to(at::kDouble) - wanted.detach()).abs().max().item<double>(), 4 * epsilon(type));
  double sum_bound = 8 * epsilon(type) * std::sqrt(static_cast<double>(rows));
  EXPECT_LE((w.weight->gradient.to(at::kDouble) - weight.grad() * 2).abs().max().item<double>(), sum_bound);
  if (layer_norm) {
    EXPECT_LE((w.bias->gradient.to(at::kDouble) - bias.grad() * 2).abs().max().item<double>(), sum_bound);
  }
}

TEST(Norm, EqualsTheFormula) {
  for (bool layer_norm : {false, true})
    for (auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      check_norm(layer_norm, type, 5, 32);
      check_norm(layer_norm, type, 1, 7);
      check_norm(layer_norm, type, 67, 33);
    }
}

}  // namespace
}  // namespace plait
