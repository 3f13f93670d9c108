// A feed-forward part split over tensor ranks: ColumnParallelLinear -> GELU -> RowParallelLinear, once on 1 rank and once on 4 thread ranks.
// The 10 columns in between do not divide by 4: ranks hold 3, 3, 2 and 2 of them. Values come from (seed, name, index), so both runs have
// the same weights, and output and gradients must agree to the rounding of fp64.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

#include "plait/comm/launch.h"
#include "plait/tensor_parallel/linear.h"

namespace {

struct Result {
  at::Tensor output, input_gradient;
  std::map<std::string, at::Tensor> weight_gradients;  // whole tensors, flat
};

// Copies this rank's pieces of a gradient to their places in the whole tensor.
void collect(const plait::Parameter& p, Result& result) {
  int64_t whole_size = 1;
  for (int64_t n : p.global_shape) whole_size *= n;
  at::Tensor& whole = result.weight_gradients[p.name];
  if (!whole.defined()) whole = at::zeros({whole_size}, at::kDouble);
  at::Tensor own = p.gradient.flatten();
  plait::for_each_run(p, [&](int64_t global_begin, int64_t local_begin, int64_t length) {
    whole.narrow(0, global_begin, length).copy_(own.narrow(0, local_begin, length));
  });
}

Result run_on(int64_t tensor_ranks) {
  Result result;
  std::mutex mutex;
  plait::run_thread_ranks({/*dp_size=*/1, /*pp_size=*/1, tensor_ranks}, [&](plait::Mesh& mesh) {
    plait::TensorParallelContext context{&mesh.tensor()};
    plait::ParameterStore store;
    plait::ColumnParallelLinear up(store, "up", 6, 10, /*bias=*/true, /*gather_output=*/false, context);
    plait::RowParallelLinear down(store, "down", 10, 6, /*bias=*/true, /*input_is_parallel=*/true, context);
    store.allocate(at::kDouble, at::kCPU);
    store.initialize(/*seed=*/1, /*all_random=*/true);
    up.bind();
    down.bind();

    at::Tensor x = at::linspace(-1, 1, 5 * 6, at::kDouble).reshape({5, 6}).requires_grad_(true);  // [T, I], the same on every rank
    at::Tensor hidden = at::gelu(up.forward(x));                                                  // [T, o]: own columns; nothing was sent
    at::Tensor y = down.forward(hidden);                                                          // [T, O]: summed over the ranks
    (y * y).sum().backward();

    std::lock_guard<std::mutex> lock(mutex);
    if (tensor_ranks > 1) std::printf("rank %d holds %d of 10 columns\n", static_cast<int>(mesh.rank()), static_cast<int>(hidden.size(1)));
    for (const auto& p : store.parameters()) collect(*p, result);
    if (mesh.rank() == 0) result.output = y.detach(), result.input_gradient = x.grad();
  });
  return result;
}

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>() / b.abs().max().item<double>(); }

}  // namespace

int main() {
  Result one = run_on(1), four = run_on(4);
  double output = difference(four.output, one.output), input = difference(four.input_gradient, one.input_gradient), weights = 0;
  for (const auto& [name, gradient] : one.weight_gradients) weights = std::max(weights, difference(four.weight_gradients[name], gradient));
  std::printf("4 ranks against 1: largest relative difference of the output %.1e, input gradient %.1e, weight gradients %.1e\n", output,
              input, weights);
  return std::max({output, input, weights}) < 1e-12 ? 0 : 1;
}
