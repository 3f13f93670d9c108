#include "plait/model/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "plait/base/error.h"
#include "plait/model/attention_mask.h"
#include "plait/model/fast_attention.h"

namespace plait {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Heads {
  at::Tensor q, k, v;  // [B, n, S, D]; k and v repeated to n heads
};

struct Mask {
  at::Tensor bias;  // additive, or undefined
  bool plain_causal = false;
};

// Views of rows [begin, +count*length) of the fused matrix as [count, heads, length, D].
at::Tensor head_view(const at::Tensor& rows, const SegmentRun& run, int64_t first, int64_t heads, int64_t head_size) {
  int64_t all = rows.size(1) / head_size;
  return rows.narrow(0, run.begin, run.count * run.length)
      .view({run.count, run.length, all, head_size})
      .narrow(2, first, heads)
      .transpose(1, 2);
}

at::Tensor repeat_heads(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  auto s = x.sizes();
  return x.unsqueeze(2).expand({s[0], s[1], times, s[2], s[3]}).reshape({s[0], s[1] * times, s[2], s[3]});
}

at::Tensor sum_repeated_heads(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  auto s = x.sizes();
  return x.reshape({s[0], s[1] / times, times, s[2], s[3]}).sum(2);
}

Heads split_heads(const at::Tensor& rotated, const SegmentRun& run, const AttentionOptions& o) {
  int64_t n = o.num_heads, g = o.num_kv_heads, d = o.head_size;
  return {head_view(rotated, run, 0, n, d), repeat_heads(head_view(rotated, run, n, g, d), n / g),
          repeat_heads(head_view(rotated, run, n + g, g, d), n / g)};
}

at::Tensor rotate(const at::Tensor& qkv, const AttentionOptions& o, const ForwardContext& c) {
  if (!o.rotary) return qkv;
  at::Tensor out = qkv.clone();
  at::Tensor heads = out.view({out.size(0), -1, o.head_size});
  apply_rotary(heads.narrow(1, 0, o.num_heads + o.num_kv_heads), c.rotary, false);
  return out;
}

// Softmax of scaled scores in fp32 (fp64): [B, n, S, S].
at::Tensor explicit_probabilities(const Heads& h, const at::Tensor& mask, const AttentionOptions& o) {
  auto type = h.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor scores = at::matmul(h.q, h.k.transpose(2, 3)).to(type).mul_(o.scale);
  if (mask.defined()) scores.add_(mask);
  return at::softmax(scores, -1);
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, const AttentionOptions* options, const ForwardContext* context) {
    const auto& o = *options;
    const auto& c = *context;
    bool explicit_form = o.dropout > 0 && c.training, fast = !explicit_form && detail::fast_attention_runs(qkv);
    std::vector<Mask> masks;
    for (const auto& run : c.runs) {
      Mask& m = masks.emplace_back();
      m.bias = attention_mask(run, o, c.batch, qkv, explicit_form, &m.plain_causal);
      fast = fast && !m.bias.defined();
    }
    if (fast) return fast_forward(ctx, qkv, options, c);
    at::Tensor rotated = rotate(qkv, o, c), out = at::empty({qkv.size(0), o.num_heads * o.head_size}, qkv.options());
    variable_list saved = {rotated, out, c.rotary.cosine, c.rotary.sine};
    for (size_t i = 0; i < c.runs.size(); ++i) {
      const SegmentRun& run = c.runs[i];
      Heads h = split_heads(rotated, run, o);
      at::Tensor target = head_view(out, run, 0, o.num_heads, o.head_size);
      const auto& [mask, plain_causal] = masks[i];
      if (explicit_form) {
        at::Tensor p = explicit_probabilities(h, mask, o);
        at::Tensor keep = attention_dropout_mask(run, o, c, p);
        target.copy_(at::matmul(p.mul(keep).to(qkv.scalar_type()), h.v));
        saved.push_back(p);
        saved.push_back(keep);
      } else {
        auto [y, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
            h.q, h.k, h.v, 0.0, plain_causal, mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, o.scale);
        target.copy_(y);
        saved.push_back(log_sum);
        saved.push_back(mask);
      }
    }
    save(ctx, saved, options, c, explicit_form, false);
    return out;
  }

  static void save(AutogradContext* ctx, const variable_list& tensors, const AttentionOptions* options, const ForwardContext& c,
                   bool explicit_form, bool fast) {
    ctx->save_for_backward(tensors);
    ctx->saved_data["options"] = reinterpret_cast<int64_t>(options);
    ctx->saved_data["explicit"] = explicit_form;
    ctx->saved_data["fast"] = fast;
    ctx->saved_data["runs"] = pack_runs(c.runs);
  }

  static at::Tensor fast_forward(AutogradContext* ctx, const at::Tensor& given, const AttentionOptions* options, const ForwardContext& c) {
    at::Tensor qkv = given.contiguous(), out = at::empty({qkv.size(0), options->num_heads * options->head_size}, qkv.options());
    variable_list saved = {qkv, out, c.rotary.cosine, c.rotary.sine};
    for (const auto& run : c.runs) saved.push_back(detail::fast_attention_forward(qkv, run, *options, c.rotary, out));
    save(ctx, saved, options, c, false, true);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::NoGradGuard no_grad;
    auto saved = ctx->get_saved_variables();
    const auto& o = *reinterpret_cast<const AttentionOptions*>(ctx->saved_data["options"].toInt());
    bool explicit_form = ctx->saved_data["explicit"].toBool();
    auto runs = unpack_runs(ctx->saved_data["runs"].toIntVector());
    at::Tensor rotated = saved[0], out = saved[1], dy = grads[0].contiguous();
    at::Tensor d_qkv = at::empty_like(rotated);
    if (ctx->saved_data["fast"].toBool()) {
      for (size_t i = 0; i < runs.size(); ++i)
        detail::fast_attention_backward(saved[0], runs[i], o, {saved[2], saved[3]}, out, saved[4 + i], dy, d_qkv);
      return {d_qkv, at::Tensor(), at::Tensor()};
    }
    int64_t n = o.num_heads, g = o.num_kv_heads, d = o.head_size;
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto& run = runs[i];
      Heads h = split_heads(rotated, run, o);
      at::Tensor dyh = head_view(dy, run, 0, n, d), first = saved[4 + 2 * i], second = saved[5 + 2 * i];
      Heads dh = explicit_form ? explicit_backward(h, dyh, first, second, o)
                               : fused_backward(h, dyh, head_view(out, run, 0, n, d), first, second, run, o);
      head_view(d_qkv, run, 0, n, d).copy_(dh.q);
      head_view(d_qkv, run, n, g, d).copy_(sum_repeated_heads(dh.k, n / g));
      head_view(d_qkv, run, n + g, g, d).copy_(sum_repeated_heads(dh.v, n / g));
    }
    if (o.rotary) {
      at::Tensor heads = d_qkv.view({d_qkv.size(0), -1, d});
      apply_rotary(heads.narrow(1, 0, n + g), {saved[2], saved[3]}, true);
    }
    return {d_qkv, at::Tensor(), at::Tensor()};
  }

  static Heads explicit_backward(const Heads& h, const at::Tensor& dy, const at::Tensor& p, const at::Tensor& keep,
                                 const AttentionOptions& o) {
    auto type = h.q.scalar_type();
    at::Tensor dropped = p.mul(keep).to(type);
    at::Tensor dv = at::matmul(dropped.transpose(2, 3), dy);
    at::Tensor dp = at::matmul(dy, h.v.transpose(2, 3)).to(p.scalar_type()).mul_(keep);
    at::Tensor ds = p.mul(dp - (dp * p).sum(-1, true)).mul_(o.scale).to(type);
    return {at::matmul(ds, h.k), at::matmul(ds.transpose(2, 3), h.q), dv};
  }

  static Heads fused_backward(const Heads& h, const at::Tensor& dy, const at::Tensor& out, const at::Tensor& log_sum,
                              const at::Tensor& mask, const SegmentRun& run, const AttentionOptions& o) {
    bool plain_causal = o.causal && !mask.defined();  // as attention_mask() decided in forward
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dy, h.q, h.k, h.v, out, log_sum, 0.0, plain_causal, mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, o.scale);
    return {dq, dk, dv};
  }
};

// The same through autograd, for devices whose fused kernels LibTorch picks itself.
at::Tensor device_attention(const at::Tensor& qkv, const AttentionOptions& o, const ForwardContext& c) {
  PLAIT_CHECK(!(o.dropout > 0 && c.training), "attention dropout on ", qkv.device().str(), " is refused at start");
  int64_t n = o.num_heads, g = o.num_kv_heads, d = o.head_size;
  at::Tensor heads = qkv.view({qkv.size(0), -1, d}), q = heads.narrow(1, 0, n), k = heads.narrow(1, n, g), v = heads.narrow(1, n + g, g);
  if (o.rotary) {
    at::Tensor qk = heads.narrow(1, 0, n + g);
    at::Tensor a = qk.narrow(2, 0, d / 2), b = qk.narrow(2, d / 2, d / 2);
    at::Tensor cosine = c.rotary.cosine.unsqueeze(1), sine = c.rotary.sine.unsqueeze(1);
    qk = at::cat({a * cosine - b * sine, b * cosine + a * sine}, 2).to(qkv.scalar_type());
    q = qk.narrow(1, 0, n);
    k = qk.narrow(1, n, g);
  }
  std::vector<at::Tensor> outputs;
  for (const auto& run : c.runs) {
    auto part = [&](const at::Tensor& x) {
      return x.narrow(0, run.begin, run.count * run.length).view({run.count, run.length, x.size(1), d}).transpose(1, 2);
    };
    bool plain_causal = false;
    at::Tensor mask = attention_mask(run, o, c.batch, qkv, false, &plain_causal);
    at::Tensor y =
        at::scaled_dot_product_attention(part(q), repeat_heads(part(k), n / g), repeat_heads(part(v), n / g),
                                         mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, 0.0, plain_causal, o.scale);
    outputs.push_back(y.transpose(1, 2).reshape({run.count * run.length, n * d}));
  }
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const AttentionOptions& options, const ForwardContext& context) {
  if (!qkv.is_cpu()) return device_attention(qkv, options, context);
  return AttentionFunction::apply(qkv, &options, &context);
}

}  // namespace plait
