// Dropout by counter: whether an element is kept is a pure function of (seed, step, sample id, position in the row, layer, site, channel
// or (head, key position)), never of a padded offset, of time or of layout. So every layout, recomputation and resume draws the same
// mask, and nothing has to be stored: the backward draws it again. Kept values are scaled by 1 / (1 - p).
// No state, no communication; safe from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "plait/plan/partition.h"
#include "plait/tensor/micro_batch.h"

namespace plait {

// Where in a layer (or around the layers: kEmbedding, kHead use layer 0) the dropout stands.
enum class DropoutSite : uint64_t { kEmbedding = 1, kAttentionProbabilities = 2, kAttentionOutput = 3, kMlpOutput = 4, kHead = 5 };

// Keys [T] of the tokens of a micro-batch, from (seed, step, sample id, position in the row). `step`: the optimizer step.
std::vector<uint64_t> token_keys(uint64_t seed, uint64_t step, const MicroBatch& batch);
// Keys [B] of its rows (position 0), for tensors of one line a row: a classification head.
std::vector<uint64_t> sample_keys(uint64_t seed, uint64_t step, const MicroBatch& batch);
// keys[rows] for one layer and site. Sequence parallel: only this rank's rows.
std::vector<uint64_t> site_keys(const std::vector<uint64_t>& keys, int64_t layer, DropoutSite site, Span rows);
std::vector<uint64_t> site_keys(const std::vector<uint64_t>& keys, int64_t layer, DropoutSite site);
// All in one: site_keys(token_keys(...)).
std::vector<uint64_t> row_keys(uint64_t seed, uint64_t step, const MicroBatch& batch, int64_t layer, DropoutSite site);

// x [t, h] (any float type; t = keys.size()) -> same shape, new tensor, with autograd (nothing saved but the keys). first_channel: the
// logical channel of column 0, when x holds a slice of the channels. p in [0, 1); p = 0 returns x itself.
// Throws Error(kUsage) when p is out of range.
at::Tensor dropout_rows(const at::Tensor& x, const std::vector<uint64_t>& keys, double p, int64_t first_channel = 0);

// Fills mask_out [heads, queries, keys] (contiguous, CPU, any float type) with 0 or 1 / (1 - p) for one attention segment.
// query_keys: [queries] site keys of the query tokens; first_head: global index of head 0; first_key: position in the row of key 0.
void dropout_mask_attention(at::Tensor mask_out, const uint64_t* query_keys, double p, int64_t first_head, int64_t first_key);

}  // namespace plait
