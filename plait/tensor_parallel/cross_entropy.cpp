#include "plait/tensor_parallel/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "plait/base/error.h"
#include "plait/plan/partition.h"

namespace plait {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SplitLoss {
  at::Tensor loss;           // [n]
  at::Tensor probabilities;  // [n, v] own columns
  at::Tensor own_target;     // [n] local column, -1 when another rank has it or it is ignored
  at::Tensor valid;          // [n] bool
};

SplitLoss split_loss(const at::Tensor& logits, const at::Tensor& targets, int64_t vocab_size, double smoothing,
                     const TensorParallelContext& c) {
  at::ScalarType type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Span own = split_evenly(vocab_size, c.size(), c.rank());
  PLAIT_CHECK(logits.size(1) == own.size, "logits have ", logits.size(1), " columns, own share is ", own.size);
  int64_t n = logits.size(0);
  SplitLoss r;
  at::Tensor x = logits.to(type, /*non_blocking=*/false, /*copy=*/true);
  at::Tensor top = own.size > 0 ? x.amax(1) : at::full({n}, -std::numeric_limits<double>::infinity(), x.options());
  c.group->all_reduce(top, ReduceOp::kMax)->wait();
  x.sub_(top.unsqueeze(1));

  r.valid = targets.ne(-100);
  at::Tensor column = targets - own.begin;
  at::Tensor mine = column.ge(0).logical_and_(column.lt(own.size)).logical_and_(r.valid);
  r.own_target = column.masked_fill(mine.logical_not(), -1);
  at::Tensor sums = at::zeros({smoothing > 0 ? 3 : 2, n}, x.options());  // exp, target logit, all logits
  if (own.size > 0) {
    at::Tensor picked = x.gather(1, r.own_target.clamp_min(0).unsqueeze(1)).squeeze(1);
    sums[1].copy_(picked.masked_fill_(mine.logical_not(), 0));
    if (smoothing > 0) sums[2].copy_(x.sum(1));
    x.exp_();
    sums[0].copy_(x.sum(1));
  }
  c.group->all_reduce(sums)->wait();
  at::Tensor log_sum = sums[0].log();
  r.loss = log_sum - sums[1];
  if (smoothing > 0) r.loss = r.loss * (1 - smoothing) + (log_sum - sums[2] / static_cast<double>(vocab_size)) * smoothing;
  r.loss = r.loss.masked_fill(r.valid.logical_not(), 0);
  r.probabilities = x.div_(sums[0].unsqueeze(1));
  return r;
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits, const at::Tensor& targets, int64_t vocab_size, double smoothing,
                            const TensorParallelContext& context) {
    SplitLoss r = split_loss(logits, targets, vocab_size, smoothing, context);
    ctx->save_for_backward({r.probabilities, r.own_target, r.valid});
    ctx->saved_data["smoothing"] = smoothing;
    ctx->saved_data["vocab_size"] = vocab_size;
    ctx->saved_data["type"] = static_cast<int64_t>(logits.scalar_type());
    return r.loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    at::Tensor p = saved[0], own_target = saved[1], valid = saved[2];
    double e = ctx->saved_data["smoothing"].toDouble();
    auto vocab_size = static_cast<double>(ctx->saved_data["vocab_size"].toInt());
    auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    at::Tensor scale = (grads[0] * valid).unsqueeze(1);
    at::Tensor dx = p.mul(scale);
    if (p.size(1) > 0) {
      if (e > 0) dx.sub_(scale * (e / vocab_size));
      at::Tensor hit = scale.mul(own_target.ge(0).unsqueeze(1)).mul_(-(1 - e));
      dx.scatter_add_(1, own_target.clamp_min(0).unsqueeze(1), hit);
    }
    return {dx.to(type), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, int64_t vocab_size, double label_smoothing,
                                        const TensorParallelContext& context) {
  if (!at::GradMode::is_enabled() || !logits.requires_grad())
    return split_loss(logits, targets, vocab_size, label_smoothing, context).loss;
  return CrossEntropyFunction::apply(logits, targets, vocab_size, label_smoothing, context);
}

}  // namespace plait
