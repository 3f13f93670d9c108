// Masks of attention: causal, sliding window, keys that are never attended to, and the dropout mask of the probabilities.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "plait/model/forward_context.h"

namespace plait {

struct AttentionOptions;

// Additive mask [1 or count, 1, S, S] for a run, or undefined. When the causal mask alone is needed and `full` is false, returns
// undefined and sets *plain_causal. Hidden places get a large finite number, so that a row that sees nothing stays finite.
at::Tensor attention_mask(const SegmentRun& run, const AttentionOptions& options, const MicroBatch& batch, const at::Tensor& like,
                          bool full, bool* plain_causal);

// Dropout factors (0 or 1/(1-p)) of probabilities [count, n, S, S].
at::Tensor attention_dropout_mask(const SegmentRun& run, const AttentionOptions& options, const ForwardContext& context,
                                  const at::Tensor& probabilities);

}  // namespace plait
