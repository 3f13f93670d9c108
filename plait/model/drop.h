// Dropout inside the model: the counter-based mask of tensor/dropout.h at a named site, aware of sequence parallelism.
#pragma once

#include <ATen/core/Tensor.h>

#include "plait/model/forward_context.h"
#include "plait/tensor_parallel/context.h"

namespace plait {

// x [T, H] (own rows [t, H] under sequence parallelism) with probability p dropped; x itself when not training or p is 0.
at::Tensor drop_rows(const at::Tensor& x, double p, int64_t layer, DropoutSite site, const ForwardContext& context,
                     const TensorParallelContext& parallel);
// x [B, H], one row for each row of the micro-batch (the pooled first token).
at::Tensor drop_pooled(const at::Tensor& x, double p, const ForwardContext& context);

}  // namespace plait
