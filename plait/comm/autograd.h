// Collectives with a backward, over the tensor axis. All work on tensors [T, ...] whose rows are tokens.
// Rank rule: all members of the group call in the same order, in forward and in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include "plait/comm/process_group.h"

namespace plait {

// Forward: identity. Backward: all-reduce. (Megatron-LM's f, arXiv 1909.08053 figure 3.)
at::Tensor copy_to_tensor_ranks(const at::Tensor& x, ProcessGroup& group);
// Forward: all-reduce. Backward: identity. (Megatron-LM's g.)
at::Tensor reduce_from_tensor_ranks(const at::Tensor& x, ProcessGroup& group);
// Forward: gathers rows [t, ...] of every member to [t * size, ...]. Backward: reduce-scatter (each member used the whole for its own
// shard of work), or own rows only when `replicated_use` (every member does the same work with the result).
at::Tensor gather_rows(const at::Tensor& x, ProcessGroup& group, bool replicated_use);
// Forward: sum over members, own rows kept: [t * size, ...] -> [t, ...]. Backward: all-gather.
at::Tensor reduce_scatter_rows(const at::Tensor& x, ProcessGroup& group);
// Forward: own rows of a tensor that is the same on all members. Backward: all-gather.
at::Tensor scatter_rows(const at::Tensor& x, ProcessGroup& group);
// Forward: gathers the last axis: [..., h] -> [..., sum h] (members may differ in h: split_evenly of total). Backward: own columns.
at::Tensor gather_columns(const at::Tensor& x, int64_t total, ProcessGroup& group);

}  // namespace plait
