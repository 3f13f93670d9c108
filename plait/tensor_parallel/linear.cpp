#include "plait/tensor_parallel/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "plait/base/error.h"
#include "plait/comm/autograd.h"
#include "plait/plan/partition.h"
#include "plait/tensor/matrix_product.h"
#include "plait/tensor_parallel/products.h"

namespace plait {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One matrix over parameters that lie behind each other.
at::Tensor fuse(const std::vector<Parameter*>& parts, at::Tensor Parameter::*field) {
  if (parts.empty()) return {};
  const at::Tensor& first = parts[0]->*field;
  if (parts.size() == 1 || !first.defined()) return first;  // undefined: a store without gradients
  int64_t rows = 0, end = parts[0]->offset;
  for (auto* p : parts) {
    PLAIT_CHECK(p->offset == end, p->name, " does not follow its neighbour in memory");
    rows += p->local_shape[0];
    end = p->offset + p->numel;
  }
  auto sizes = first.sizes().vec();
  sizes[0] = rows;
  return first.as_strided(sizes, first.strides());
}

at::Tensor linear_forward(const at::Tensor& x, const LinearWeights& w, LinearMode mode, const TensorParallelContext& c) {
  bool parallel = c.size() > 1;
  if (mode == LinearMode::kRow) {
    if (!parallel) return matrix_product(x, w.weight.t(), w.bias);
    detail::Summing summing = detail::begin_summed_product(x, w.weight.t(), c);
    summing.work->wait();
    if (w.bias.defined()) summing.result.add_(w.bias);
    return summing.result;
  }
  if (parallel && mode == LinearMode::kColumn && c.sequence_parallel) return detail::gathered_product(x, w.weight.t(), w.bias, c, nullptr);
  return matrix_product(x, w.weight.t(), w.bias);
}

// gradient += dy^T x, in the gradient's own type.
void add_weight_gradient(const LinearWeights& w, const at::Tensor& dy, const at::Tensor& x) {
  add_matrix_product(w.weight_gradient, dy.t(), x);
  w.weight_done();
}

void add_bias_gradient(const LinearWeights& w, const at::Tensor& dy) {
  if (!w.bias.defined()) return;
  at::Tensor gradient = w.bias_gradient;
  const int64_t rows[] = {0};
  gradient.add_(at::sum(dy, rows, false, gradient.scalar_type()));
  w.bias_done();
}

void keep_context(AutogradContext* ctx, const TensorParallelContext& c) {
  ctx->saved_data["group"] = reinterpret_cast<int64_t>(c.group);
  ctx->saved_data["queue"] = reinterpret_cast<int64_t>(c.weight_gradients);
  ctx->saved_data["pool"] = reinterpret_cast<int64_t>(c.pool);
  ctx->saved_data["switches"] = (c.sequence_parallel ? 1 : 0) | (c.overlap ? 2 : 0) | (c.p2p ? 4 : 0);
}

TensorParallelContext kept_context(AutogradContext* ctx) {
  int64_t switches = ctx->saved_data["switches"].toInt();
  return {reinterpret_cast<ProcessGroup*>(ctx->saved_data["group"].toInt()),
          (switches & 1) != 0,
          reinterpret_cast<WeightGradientQueue*>(ctx->saved_data["queue"].toInt()),
          (switches & 2) != 0,
          (switches & 4) != 0,
          reinterpret_cast<SharedPool*>(ctx->saved_data["pool"].toInt())};
}

struct ParallelLinearFunction : torch::autograd::Function<ParallelLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const LinearWeights* weights, int64_t mode,
                            const TensorParallelContext& context) {
    ctx->save_for_backward({x});
    ctx->saved_data["weights"] = reinterpret_cast<int64_t>(weights);
    ctx->saved_data["mode"] = mode;
    keep_context(ctx, context);
    return linear_forward(x, *weights, static_cast<LinearMode>(mode), context);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor x = ctx->get_saved_variables()[0], dy = grads[0].contiguous();
    auto* w = reinterpret_cast<const LinearWeights*>(ctx->saved_data["weights"].toInt());
    auto mode = static_cast<LinearMode>(ctx->saved_data["mode"].toInt());
    TensorParallelContext c = kept_context(ctx);
    bool parallel = c.size() > 1;

    at::Tensor x_full = x, dy_full = dy, dx;
    WorkPtr reducing;
    if (parallel && mode == LinearMode::kColumn) {
      detail::Gathering gathering;
      if (c.sequence_parallel) gathering = detail::begin_gather(x, c);
      if (gathering.work && !c.overlap) gathering.work->wait();
      detail::Summing summing = detail::begin_summed_product(dy, w->weight, c);
      dx = summing.result;
      reducing = summing.work;
      if (!c.overlap) reducing->wait();
      if (gathering.work) {
        gathering.work->wait();
        x_full = gathering.whole;
      }
    } else if (parallel && mode == LinearMode::kRow && c.sequence_parallel) {
      dx = detail::gathered_product(dy, w->weight, {}, c, &dy_full);
    } else {
      dx = matrix_product(dy, w->weight);
    }
    add_bias_gradient(*w, dy);
    // Shared memory moves only when somebody looks. What the others have ready by now is taken before the longest product, not after it.
    if (reducing && c.overlap) reducing->done();
    if (c.weight_gradients) c.weight_gradients->run_or_defer([w, dy_full, x_full] { add_weight_gradient(*w, dy_full, x_full); });
    else add_weight_gradient(*w, dy_full, x_full);
    if (reducing) reducing->wait();
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Own columns of a tensor that all ranks hold; backward gathers them.
at::Tensor split_columns(const at::Tensor& x, ProcessGroup& group) {
  Span own = split_evenly(x.size(1), group.size(), group.rank());
  return copy_to_tensor_ranks(x, group).narrow(1, own.begin, own.size).contiguous();
}

}  // namespace

LinearWeights::LinearWeights(std::vector<Parameter*> weights, std::vector<Parameter*> biases)
    : weight(fuse(weights, &Parameter::weight)), bias(fuse(biases, &Parameter::weight)),
      weight_gradient(fuse(weights, &Parameter::gradient)), bias_gradient(fuse(biases, &Parameter::gradient)), weights_(std::move(weights)),
      biases_(std::move(biases)) {}

void LinearWeights::add_use() const {
  for (auto* p : weights_) p->add_use();
  for (auto* p : biases_) p->add_use();
}
void LinearWeights::weight_done() const {
  for (auto* p : weights_) p->use_done();
}
void LinearWeights::bias_done() const {
  for (auto* p : biases_) p->use_done();
}

at::Tensor parallel_linear(const at::Tensor& x, const LinearWeights& weights, LinearMode mode, const TensorParallelContext& context) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return linear_forward(x, weights, mode, context);
  weights.add_use();
  return ParallelLinearFunction::apply(x, &weights, static_cast<int64_t>(mode), context);
}

Parameter shard_parameter(const std::string& name, std::vector<int64_t> global_shape, int64_t axis, const TensorParallelContext& context) {
  Parameter p;
  p.name = name;
  p.local_shape = global_shape;
  if (axis >= 0) {
    Span own = split_evenly(global_shape[axis], context.size(), context.rank());
    p.shard_axis = axis;
    p.pieces = {{0, own.begin, own.size}};
    p.local_shape[axis] = own.size;
  } else {
    p.counts_in_norm = p.owner = context.rank() == 0;
  }
  p.global_shape = std::move(global_shape);
  return p;
}

ColumnParallelLinear::ColumnParallelLinear(ParameterStore& store, const std::string& name, int64_t in_size, int64_t out_size, bool bias,
                                           bool gather_output, const TensorParallelContext& context)
    : context_(context), out_size_(out_size), gather_output_(gather_output),
      weight_(&store.declare(shard_parameter(name + ".weight", {out_size, in_size}, 0, context))) {
  if (!bias) return;
  Parameter p = shard_parameter(name + ".bias", {out_size}, 0, context);
  p.decay = false;
  p.init = InitKind::kZeros;
  bias_ = &store.declare(std::move(p));
}

void ColumnParallelLinear::bind() {
  weights_ = LinearWeights({weight_}, bias_ ? std::vector<Parameter*>{bias_} : std::vector<Parameter*>{});
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& x) const {
  at::Tensor y = parallel_linear(x, weights_, LinearMode::kColumn, context_);
  return gather_output_ ? gather_columns(y, out_size_, *context_.group) : y;
}

RowParallelLinear::RowParallelLinear(ParameterStore& store, const std::string& name, int64_t in_size, int64_t out_size, bool bias,
                                     bool input_is_parallel, const TensorParallelContext& context)
    : context_(context), in_size_(in_size), input_is_parallel_(input_is_parallel),
      weight_(&store.declare(shard_parameter(name + ".weight", {out_size, in_size}, 1, context))) {
  if (!bias) return;
  Parameter p = shard_parameter(name + ".bias", {out_size}, -1, context);
  p.decay = false;
  p.init = InitKind::kZeros;
  p.partial_over_tp = context.sequence_parallel;
  bias_ = &store.declare(std::move(p));
}

void RowParallelLinear::bind() { weights_ = LinearWeights({weight_}, bias_ ? std::vector<Parameter*>{bias_} : std::vector<Parameter*>{}); }

at::Tensor RowParallelLinear::forward(const at::Tensor& x) const {
  at::Tensor input = input_is_parallel_ ? x : split_columns(x, *context_.group);
  PLAIT_CHECK(input_is_parallel_ || x.size(1) == in_size_, "input width ", x.size(1), ", layer expects ", in_size_);
  return parallel_linear(input, weights_, LinearMode::kRow, context_);
}

}  // namespace plait
