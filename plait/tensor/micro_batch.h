// MicroBatch: one forward-backward unit of one data rank. Tokens of all rows lie one after the other WITHOUT padding: [T], T = sum of
// row lengths. Attention runs inside segments (a segment is a row, or one document of a packed row). No padded position is ever computed.
// Every rank of a pipeline and tensor group holds the same MicroBatch (built from the same data), so shapes are never communicated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace plait {

constexpr int64_t kIgnoredTarget = -100;

struct MicroBatch {
  at::Tensor input_ids;                  // [T] int64
  at::Tensor positions;                  // [T] int64, position id (restarts in each document when documents are kept apart)
  at::Tensor token_types;                // [T] int64 or undefined
  at::Tensor targets;                    // causal LM: [T] int64, what each token should predict (already shifted), -100 = nothing;
                                         // classification: [B] int64 class of each row; undefined when only predicting
  at::Tensor key_mask;                   // [T] bool, false = never attended to; undefined = all true
  std::vector<int64_t> row_offsets;      // B + 1: row b is tokens [row_offsets[b], row_offsets[b+1])
  std::vector<int64_t> segment_offsets;  // attention segments, same form; equal to row_offsets unless documents are kept apart
  std::vector<int64_t> sample_ids;       // [B] row of the data set, for dropout keys
  int64_t num_targets = 0;               // targets that are not -100

  int64_t num_rows() const { return static_cast<int64_t>(sample_ids.size()); }
  int64_t num_tokens() const { return row_offsets.empty() ? 0 : row_offsets.back(); }
  bool empty() const { return num_tokens() == 0; }
};

}  // namespace plait
