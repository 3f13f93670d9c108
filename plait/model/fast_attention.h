// Attention through plait's own kernels (tensor/attention_kernels.h): where no mask but the causal one is needed and the processor runs them.
// They read q, k and v in place in the fused matrix, rotate as they read, share key/value heads among their queries and write into place.
// Same shapes and rules as attention().
#pragma once

#include <ATen/core/Tensor.h>

#include "plait/model/attention.h"

namespace plait::detail {

// For the type and device of qkv, on this processor.
bool fast_attention_runs(const at::Tensor& qkv);

// Fills the run's rows of out [T, n D]; returns what the backward needs, [count, n, S] fp32. qkv is not rotated.
at::Tensor fast_attention_forward(const at::Tensor& qkv, const SegmentRun& run, const AttentionOptions& options, const RotaryTable& rotary,
                                  at::Tensor& out);
// Fills the run's rows of d_qkv.
void fast_attention_backward(const at::Tensor& qkv, const SegmentRun& run, const AttentionOptions& options, const RotaryTable& rotary,
                             const at::Tensor& out, const at::Tensor& log_sum, const at::Tensor& d_out, at::Tensor& d_qkv);

}  // namespace plait::detail
