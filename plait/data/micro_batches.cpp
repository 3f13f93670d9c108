#include "plait/data/micro_batches.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "plait/base/error.h"

namespace plait {

namespace {

bool attended(const TokenRow& row, size_t i) { return row.attention_mask.empty() || row.attention_mask[i] != 0; }

bool starts_document(const TokenRow& row, size_t i) {
  return std::binary_search(row.document_starts.begin(), row.document_starts.end(), static_cast<int32_t>(i));
}

// What token i should predict, kIgnoredTarget when nothing.
int64_t causal_target(const TokenRow& row, size_t i) {
  if (i + 1 >= row.ids.size() || starts_document(row, i + 1)) return kIgnoredTarget;
  return row.labels.empty() ? row.ids[i + 1] : row.labels[i + 1];
}

// Tokens that are computed: all but the masked tail.
size_t kept_length(const TokenRow& row, Task task) {
  size_t length = row.ids.size();
  while (length > 1 && !attended(row, length - 1) &&
         (task == Task::kTextClassification || causal_target(row, length - 1) == kIgnoredTarget)) {
    --length;
  }
  return length;
}

void check_row(const TokenRow& row) {
  auto fits = [&](std::span<const int32_t> column) { return column.empty() || column.size() == row.ids.size(); };
  PLAIT_CHECK(!row.ids.empty(), "row ", row.row_id, " has no tokens");
  PLAIT_CHECK(fits(row.attention_mask) && fits(row.token_types) && fits(row.labels), "row ", row.row_id,
              " has columns of different length");
}

// Host copy of the tensors, filled token by token.
struct MicroBatchColumns {
  int64_t* ids;
  int64_t* positions;
  int64_t* token_types;  // null = not made
  int64_t* targets;      // causal LM; null = not made
  bool* key_mask;        // null = not made
};

void append_row(const TokenRow& row, size_t length, int64_t at, const MicroBatchColumns& to, std::vector<int64_t>& segments) {
  int64_t position = 0;
  for (size_t i = 0; i < length; ++i, ++at) {
    if (i > 0 && starts_document(row, i)) {
      segments.push_back(at);
      position = 0;
    }
    to.ids[at] = row.ids[i];
    to.positions[at] = position++;
    if (to.token_types) to.token_types[at] = row.token_types.empty() ? 0 : row.token_types[i];
    if (to.targets) to.targets[at] = causal_target(row, i);
    if (to.key_mask) to.key_mask[at] = attended(row, i);
  }
  segments.push_back(at);
}

at::Tensor class_targets(const std::vector<TokenRow>& rows) {
  bool labelled = rows.empty() || std::any_of(rows.begin(), rows.end(), [](const TokenRow& row) { return row.label_class >= 0; });
  if (!labelled) return {};
  at::Tensor targets = at::empty({static_cast<int64_t>(rows.size())}, at::kLong);
  for (size_t b = 0; b < rows.size(); ++b) {
    targets.data_ptr<int64_t>()[b] = rows[b].label_class >= 0 ? rows[b].label_class : kIgnoredTarget;
  }
  return targets;
}

}  // namespace

MicroBatch make_micro_batch(const std::vector<TokenRow>& rows, Task task) {
  bool causal = task == Task::kTextGeneration;
  MicroBatch batch;
  std::vector<size_t> lengths;
  bool masked = false, typed = !causal;
  batch.row_offsets.push_back(0);
  for (const auto& row : rows) {
    check_row(row);
    size_t length = kept_length(row, task);
    lengths.push_back(length);
    batch.row_offsets.push_back(batch.row_offsets.back() + static_cast<int64_t>(length));
    batch.sample_ids.push_back(row.row_id);
    batch.num_targets += count_targets(row, task);
    for (size_t i = 0; i < length && !masked; ++i) masked = !attended(row, i);
    typed = typed || !row.token_types.empty();
  }
  int64_t num_tokens = batch.row_offsets.back();
  batch.input_ids = at::empty({num_tokens}, at::kLong);
  batch.positions = at::empty({num_tokens}, at::kLong);
  if (typed) batch.token_types = at::empty({num_tokens}, at::kLong);
  if (causal) batch.targets = at::empty({num_tokens}, at::kLong);
  if (masked) batch.key_mask = at::empty({num_tokens}, at::kBool);
  MicroBatchColumns columns{batch.input_ids.data_ptr<int64_t>(), batch.positions.data_ptr<int64_t>(),
                            typed ? batch.token_types.data_ptr<int64_t>() : nullptr, causal ? batch.targets.data_ptr<int64_t>() : nullptr,
                            masked ? batch.key_mask.data_ptr<bool>() : nullptr};
  batch.segment_offsets.push_back(0);
  for (size_t b = 0; b < rows.size(); ++b) append_row(rows[b], lengths[b], batch.row_offsets[b], columns, batch.segment_offsets);
  if (!causal) batch.targets = class_targets(rows);
  return batch;
}

MicroBatch make_micro_batch(const Dataset& dataset, std::span<const int64_t> row_ids, Task task) {
  std::vector<TokenRow> rows;
  rows.reserve(row_ids.size());
  for (int64_t id : row_ids) rows.push_back(dataset.row(id));
  return make_micro_batch(rows, task);
}

int64_t count_targets(const TokenRow& row, Task task) {
  if (task == Task::kTextClassification) return row.label_class >= 0 ? 1 : 0;
  if (row.labels.empty()) return static_cast<int64_t>(row.ids.size()) - 1 - static_cast<int64_t>(row.document_starts.size());
  int64_t count = 0;
  for (size_t i = 0; i < row.ids.size(); ++i) count += causal_target(row, i) != kIgnoredTarget;
  return count;
}

int64_t count_targets(const Dataset& dataset, std::span<const int64_t> row_ids, Task task) {
  int64_t count = 0;
  for (int64_t id : row_ids) count += count_targets(dataset.row(id), task);
  return count;
}

int64_t count_kept_tokens(const TokenRow& row, Task task) { return static_cast<int64_t>(kept_length(row, task)); }

int64_t count_tokens(const Dataset& dataset, std::span<const int64_t> row_ids) {
  int64_t count = 0;
  for (int64_t id : row_ids) {
    TokenRow row = dataset.row(id);
    for (size_t i = 0; i < row.ids.size(); ++i) count += attended(row, i);
  }
  return count;
}

}  // namespace plait
