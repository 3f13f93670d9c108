// Layer norm of 16-bit rows against the same in fp32, rows of one value among them: what fills sequence-parallel regions is such a row.
#include "plait/model/norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "plait/model/block.h"
#include "plait/tensor_parallel/context.h"

namespace plait {
namespace {

struct NormRun {
  at::Tensor y, dx, weight_gradient;
};

NormRun run_norm(const at::Tensor& x, const at::Tensor& dy, double eps) {
  ModelShape shape;
  shape.hidden_size = x.size(1);
  shape.norm_eps = eps;
  shape.rms_norm = false;
  ParameterStore store;
  NormWeights w = declare_norm_parameters(store, "norm", shape, TensorParallelContext{});
  store.allocate(x.scalar_type(), at::kCPU, true);
  store.initialize(1, true);
  at::Tensor input = x.clone().requires_grad_(true), y = norm_rows(input, w);
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(y)}, {dy}, false, false, true, {});
  return {y.detach(), input.grad(), w.weight->gradient.clone()};
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.to(at::kDouble).abs().max()).item<double>();
}

TEST(LayerNorm, RowsOfOneValueIn16BitTypes) {
  for (auto type : {at::kHalf, at::kBFloat16}) {
    at::Tensor x = at::arange(5 * 24, at::kFloat).sin().view({5, 24}).to(type),
               dy = at::arange(5 * 24, at::kFloat).cos().view({5, 24}).to(type);
    for (at::Tensor* t : {&x, &dy}) t->select(0, 3).zero_();  // as sequence parallelism fills up
    NormRun low = run_norm(x, dy, 1e-12), full = run_norm(x.to(at::kFloat), dy.to(at::kFloat), 1e-12);
    EXPECT_TRUE(low.dx.isfinite().all().item<bool>()) << low.dx;
    EXPECT_TRUE(low.weight_gradient.isfinite().all().item<bool>()) << low.weight_gradient;
    EXPECT_LT(difference(low.y, full.y), 1e-2);
    EXPECT_LT(difference(low.dx, full.dx), 2e-2);
    EXPECT_LT(difference(low.weight_gradient, full.weight_gradient), 1e-2);
  }
}

}  // namespace
}  // namespace plait
