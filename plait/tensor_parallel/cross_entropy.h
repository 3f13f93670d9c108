// Cross entropy over logits whose vocabulary is split over the tensor axis; the logits are never gathered.
#pragma once

#include <ATen/core/Tensor.h>

#include "plait/tensor_parallel/context.h"

namespace plait {

// kConsumed: the logits' memory may be overwritten, which saves a copy of the largest tensor of a step; nobody may read them afterwards.
enum class LogitsUse { kKept, kConsumed };

// logits [n, v]: this rank's columns of [n, V] (split_evenly of vocab_size); targets [n] int64 global ids, -100 = ignored.
// Returns the loss of each row [n], fp32 (fp64 for fp64 logits), the same on all ranks; 0 where ignored.
// label_smoothing e: (1 - e) * nll + e * mean over the vocabulary of -log p, as PyTorch's cross_entropy.
// Backward: softmax - target, on own columns; it can run once. Sums in fp32 (fp64). Collective over the tensor group: one max and one sum of [3, n].
// Source: Shoeybi et al., arXiv 1909.08053, section 3.
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, int64_t vocab_size, double label_smoothing,
                                        const TensorParallelContext& context, LogitsUse use = LogitsUse::kKept);

}  // namespace plait
