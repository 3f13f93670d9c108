#include "plait/tensor_parallel/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "plait/base/error.h"
#include "plait/plan/partition.h"
#include "plait/tensor/exp_kernels.h"
#include "plait/tensor/parallel.h"

namespace plait {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SplitLoss {
  at::Tensor loss;          // [n]
  at::Tensor exponentials;  // [n, v] of own columns, less the row's largest logit
  at::Tensor sums;          // [n] of them over the whole vocabulary
  at::Tensor own_target;    // [n] local column, -1 when another rank has it or it is ignored
  at::Tensor valid;         // [n] bool
};

// Own one-pass loops for float32 on the CPU: the logits are the largest tensor of a step.
bool own_loop(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat && x.size(1) > 0; }

int64_t row_grain(const at::Tensor& x) { return 16384 / x.size(1) + 1; }

at::Tensor largest_of_rows(const at::Tensor& x) {
  if (x.size(1) == 0) return at::full({x.size(0)}, -std::numeric_limits<double>::infinity(), x.options());
  if (!own_loop(x)) return x.amax(1);
  at::Tensor top = at::empty({x.size(0)}, x.options());
  const float* in = x.const_data_ptr<float>();
  float* out = top.mutable_data_ptr<float>();
  int64_t width = x.size(1);
  parallel_ranges(0, x.size(0), row_grain(x),
                  [&](int64_t begin, int64_t end) { detail::row_largest(in + begin * width, out + begin, end - begin, width); });
  return top;
}

// x = exp(x - top), in place; returns the sums of its rows.
at::Tensor to_exponentials(at::Tensor& x, const at::Tensor& top) {
  if (!own_loop(x)) return x.sub_(top.unsqueeze(1)).exp_().sum(1);
  at::Tensor sums = at::empty({x.size(0)}, x.options());
  const float* less = top.const_data_ptr<float>();
  float *values = x.mutable_data_ptr<float>(), *out = sums.mutable_data_ptr<float>();
  int64_t width = x.size(1);
  parallel_ranges(0, x.size(0), row_grain(x), [&](int64_t begin, int64_t end) {
    detail::row_exponentials(values + begin * width, less + begin, values + begin * width, out + begin, end - begin, width);
  });
  return sums;
}

SplitLoss split_loss(const at::Tensor& logits, const at::Tensor& targets, int64_t vocab_size, double smoothing,
                     const TensorParallelContext& c, LogitsUse use) {
  at::NoGradGuard no_grad;
  at::ScalarType type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Span own = split_evenly(vocab_size, c.size(), c.rank());
  PLAIT_CHECK(logits.size(1) == own.size, "logits have ", logits.size(1), " columns, own share is ", own.size);
  SplitLoss r;
  bool in_place = use == LogitsUse::kConsumed && logits.scalar_type() == type && logits.is_contiguous();
  at::Tensor x = in_place ? logits.detach() : logits.detach().to(type, /*non_blocking=*/false, /*copy=*/true).contiguous();
  at::Tensor top = largest_of_rows(x);
  c.group->all_reduce(top, ReduceOp::kMax)->wait();

  r.valid = targets.ne(-100);
  at::Tensor column = targets - own.begin;
  at::Tensor mine = column.ge(0).logical_and_(column.lt(own.size)).logical_and_(r.valid);
  r.own_target = column.masked_fill(mine.logical_not(), -1);
  at::Tensor sums =
      at::zeros({smoothing > 0 ? 3 : 2, logits.size(0)}, x.options());  // exp, target logit, all logits; the last two less `top`
  if (own.size > 0) {
    at::Tensor picked = x.gather(1, r.own_target.clamp_min(0).unsqueeze(1)).squeeze(1).sub_(top);
    sums[1].copy_(picked.masked_fill_(mine.logical_not(), 0));
    if (smoothing > 0) sums[2].copy_((x - top.unsqueeze(1)).sum(1));
    sums[0].copy_(to_exponentials(x, top));
  }
  c.group->all_reduce(sums)->wait();
  at::Tensor log_sum = sums[0].log();
  r.loss = log_sum - sums[1];
  if (smoothing > 0) r.loss = r.loss * (1 - smoothing) + (log_sum - sums[2] / static_cast<double>(vocab_size)) * smoothing;
  r.loss = r.loss.masked_fill(r.valid.logical_not(), 0);
  r.exponentials = x;
  r.sums = sums[0];
  return r;
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits, const at::Tensor& targets, int64_t vocab_size, double smoothing,
                            const TensorParallelContext& context, int64_t use) {
    SplitLoss r = split_loss(logits, targets, vocab_size, smoothing, context, static_cast<LogitsUse>(use));
    ctx->save_for_backward({r.sums, r.own_target, r.valid});
    ctx->saved_data["exponentials"] = r.exponentials;
    ctx->saved_data["smoothing"] = smoothing;
    ctx->saved_data["vocab_size"] = vocab_size;
    ctx->saved_data["type"] = static_cast<int64_t>(logits.scalar_type());
    return r.loss;
  }

  // The exponentials become the gradient: a second backward finds them gone.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::NoGradGuard no_grad;
    auto saved = ctx->get_saved_variables();
    at::Tensor sums = saved[0], own_target = saved[1], valid = saved[2];
    PLAIT_CHECK(ctx->saved_data["exponentials"].isTensor(), "backward of the cross entropy twice");
    at::Tensor dx = ctx->saved_data["exponentials"].toTensor();
    ctx->saved_data["exponentials"] = c10::IValue();
    double e = ctx->saved_data["smoothing"].toDouble();
    auto vocab_size = static_cast<double>(ctx->saved_data["vocab_size"].toInt());
    auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    at::Tensor scale = (grads[0] * valid).unsqueeze(1);
    dx.mul_(scale / sums.unsqueeze(1));
    if (dx.size(1) > 0) {
      if (e > 0) dx.sub_(scale * (e / vocab_size));
      at::Tensor hit = scale.mul(own_target.ge(0).unsqueeze(1)).mul_(-(1 - e));
      dx.scatter_add_(1, own_target.clamp_min(0).unsqueeze(1), hit);
    }
    return {dx.to(type), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, int64_t vocab_size, double label_smoothing,
                                        const TensorParallelContext& context, LogitsUse use) {
  if (!at::GradMode::is_enabled() || !logits.requires_grad())
    return split_loss(logits, targets, vocab_size, label_smoothing, context, use).loss;
  return CrossEntropyFunction::apply(logits, targets, vocab_size, label_smoothing, context, static_cast<int64_t>(use));
}

}  // namespace plait
