// Token rows -> MicroBatch tensors (plait/tensor/micro_batch.h), on the CPU. The only file of this folder that makes tensors.
// Rows are laid end to end without padding. What HF's padded batch would add changes nothing: padded positions are masked as keys
// and ignored as targets, so they are left out before they cost anything. Pure functions, thread safe, no communication.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plait/config/config.h"
#include "plait/data/dataset.h"
#include "plait/tensor/micro_batch.h"

namespace plait {

// Rows with any masks and labels, as a padded HF batch would have them.
// - Trailing tokens with attention_mask 0 are dropped (causal LM: only those that predict nothing). Zeros before that stay,
//   through key_mask.
// - Causal LM: the target of token t is the label of token t + 1 of the same row; -100 for the last token, and where the next token
//   begins another document. Positions count from 0 in each row, and from 0 again in each document.
// - Classification: targets are the rows' classes; left undefined when no row has one. token_types is defined (zeros by default).
// No rows give an empty() micro-batch whose tensors have no elements.
// Precondition: every row has tokens, document_starts ascend.
MicroBatch make_micro_batch(const std::vector<TokenRow>& rows, Task task);

// The same from rows of a data set.
MicroBatch make_micro_batch(const Dataset& dataset, std::span<const int64_t> row_ids, Task task);

// Targets in these rows, for the global mean: causal LM tokens that predict something, classification labelled rows. No tensors.
int64_t count_targets(const Dataset& dataset, std::span<const int64_t> row_ids, Task task);
int64_t count_targets(const TokenRow& row, Task task);

// Tokens of a row that make_micro_batch() keeps: all but the masked tail.
int64_t count_kept_tokens(const TokenRow& row, Task task);

// Tokens of these rows that are not padding (what metrics call tokens).
int64_t count_tokens(const Dataset& dataset, std::span<const int64_t> row_ids);

}  // namespace plait
