// Embedding tables: split by vocabulary rows over the tensor axis, or replicated (positions, segments).
// Any vocabulary size: rows go out by split_evenly, nothing is padded. Gradients are added straight into the parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "plait/tensor/parameter.h"
#include "plait/tensor_parallel/context.h"

namespace plait {

// Rows of the split table for `ids` [T] (int64, global), summed over the tensor group: [T, H], or this rank's rows [t, H] of it under
// sequence parallelism (missing rows zero). frozen_row: its gradient stays 0 (nn.Embedding's padding_idx), -1 = none.
// `anchor`: any tensor that requires grad; it only makes autograd record the call. Collective over the tensor group.
at::Tensor vocab_parallel_embedding(const at::Tensor& anchor, const at::Tensor& ids, Parameter& table, int64_t frozen_row,
                                    const TensorParallelContext& context);

// Rows of a replicated table for `ids` [rows]; no communication. Rows marked -1 give zeros and no gradient.
at::Tensor replicated_embedding(const at::Tensor& anchor, const at::Tensor& ids, Parameter& table);

// x[rows] for rows that differ from each other; backward puts the gradient's rows back and zeros elsewhere.
at::Tensor select_rows(const at::Tensor& x, const at::Tensor& rows);

// Own rows of per-token values [T] under sequence parallelism, filled up with `fill` to local_rows(T).
at::Tensor own_rows(const at::Tensor& values, int64_t fill, const TensorParallelContext& context);

}  // namespace plait
