#include "plait/model/fast_attention.h"

#include <ATen/ATen.h>

#include "plait/base/error.h"
#include "plait/tensor/attention_kernels.h"
#include "plait/tensor/parallel.h"

namespace plait::detail {

namespace {

// What the kernels call the type in memory.
template <class Body>
void with_element_type(const at::Tensor& x, const Body& body) {
  switch (x.scalar_type()) {
    case at::kFloat: return body(float{});
    case at::kBFloat16: return body(BFloat16Bits{});
    case at::kHalf: return body(Float16Bits{});
    default: PLAIT_CHECK(false, "attention kernels for ", c10::toString(x.scalar_type()));
  }
}

template <class T>
T* elements(const at::Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

// Group `group` of segment `segment` of the run.
template <class T>
AttentionHeads<T> heads_of(const at::Tensor& qkv, const SegmentRun& run, const AttentionOptions& o, const RotaryTable& rotary,
                           const at::Tensor& out, const at::Tensor& log_sum, int64_t segment, int64_t group) {
  const int64_t n = o.num_heads, g = o.num_kv_heads, d = o.head_size, r = n / g, token = run.begin + segment * run.length;
  AttentionHeads<T> h;
  h.length = run.length, h.head_size = d, h.num_queries = r;
  h.scale = static_cast<float>(o.scale);
  h.causal = o.causal;
  h.stride = qkv.size(1), h.out_stride = out.size(1);
  const T* row = elements<T>(qkv) + token * h.stride;
  h.q = row + group * r * d, h.k = row + (n + group) * d, h.v = row + (n + g + group) * d;
  h.out = elements<T>(out) + token * h.out_stride + group * r * d;
  h.log_sum = log_sum.data_ptr<float>() + (segment * n + group * r) * run.length;
  if (o.rotary) {
    h.cosine = rotary.cosine.const_data_ptr<float>() + token * (d / 2);
    h.sine = rotary.sine.const_data_ptr<float>() + token * (d / 2);
  }
  return h;
}

// body(segment, group, scratch) for all of them, shared out over the threads.
template <class Body>
void for_each_group(const SegmentRun& run, const AttentionOptions& o, int64_t scratch_floats, const Body& body) {
  parallel_ranges(0, run.count * o.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    at::Tensor scratch = at::empty({scratch_floats}, at::kFloat);
    for (int64_t i = begin; i < end; ++i) body(i / o.num_kv_heads, i % o.num_kv_heads, scratch.data_ptr<float>());
  });
}

}  // namespace

bool fast_attention_runs(const at::Tensor& qkv) {
  auto type = qkv.scalar_type();
  return qkv.is_cpu() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) && attention_kernels_available();
}

at::Tensor fast_attention_forward(const at::Tensor& qkv, const SegmentRun& run, const AttentionOptions& o, const RotaryTable& rotary,
                                  at::Tensor& out) {
  at::Tensor log_sum = at::empty({run.count, o.num_heads, run.length}, at::kFloat);
  with_element_type(qkv, [&]<class T>(T) {
    for_each_group(run, o, attention_forward_scratch(run.length, o.head_size), [&](int64_t segment, int64_t group, float* scratch) {
      attention_forward(heads_of<T>(qkv, run, o, rotary, out, log_sum, segment, group), scratch);
    });
  });
  return log_sum;
}

void fast_attention_backward(const at::Tensor& qkv, const SegmentRun& run, const AttentionOptions& o, const RotaryTable& rotary,
                             const at::Tensor& out, const at::Tensor& log_sum, const at::Tensor& d_out, at::Tensor& d_qkv) {
  with_element_type(qkv, [&]<class T>(T) {
    for_each_group(run, o, attention_backward_scratch(run.length, o.head_size), [&](int64_t segment, int64_t group, float* scratch) {
      auto heads = heads_of<T>(qkv, run, o, rotary, out, log_sum, segment, group);
      const int64_t token = run.begin + segment * run.length, n = o.num_heads, d = o.head_size, r = n / o.num_kv_heads;
      AttentionGradients<T> gradients;
      gradients.d_out_stride = d_out.size(1), gradients.stride = d_qkv.size(1);
      gradients.d_out = elements<T>(d_out) + token * gradients.d_out_stride + group * r * d;
      T* row = elements<T>(d_qkv) + token * gradients.stride;
      gradients.dq = row + group * r * d, gradients.dk = row + (n + group) * d, gradients.dv = row + (n + o.num_kv_heads + group) * d;
      attention_backward(heads, gradients, scratch);
    });
  });
}

}  // namespace plait::detail
