#include "plait/data/micro_batches.h"

#include <ATen/ATen.h>

#include "tests/data/data_fixture.h"

namespace plait {
namespace {

constexpr Task kCls = Task::kTextClassification, kLm = Task::kTextGeneration;
using Ids = std::vector<int32_t>;
using Numbers = std::vector<int64_t>;

Numbers numbers(const at::Tensor& tensor) {
  at::Tensor wide = tensor.to(at::kLong).contiguous();
  return {wide.data_ptr<int64_t>(), wide.data_ptr<int64_t>() + wide.numel()};
}

TokenRow token_row(int64_t id, const Ids& ids) {
  TokenRow row;
  row.row_id = id;
  row.ids = ids;
  return row;
}

TEST(MicroBatches, CausalRowsEndToEnd) {
  Ids a{5, 6, 7}, b{8}, c{9, 10};
  MicroBatch batch = make_micro_batch({token_row(4, a), token_row(0, b), token_row(2, c)}, kLm);
  EXPECT_EQ(numbers(batch.input_ids), (Numbers{5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(numbers(batch.targets), (Numbers{6, 7, -100, -100, 10, -100}));
  EXPECT_EQ(numbers(batch.positions), (Numbers{0, 1, 2, 0, 0, 1}));
  EXPECT_EQ(batch.row_offsets, (Numbers{0, 3, 4, 6}));
  EXPECT_EQ(batch.segment_offsets, batch.row_offsets);
  EXPECT_EQ(batch.sample_ids, (Numbers{4, 0, 2}));
  EXPECT_EQ(batch.num_targets, 3);
  EXPECT_FALSE(batch.key_mask.defined());
  EXPECT_FALSE(batch.token_types.defined());
  EXPECT_EQ(batch.input_ids.scalar_type(), at::kLong);
}

TEST(MicroBatches, PaddingIsLeftOut) {
  // As an HF batch: right padding, prompt and padding labelled -100.
  Ids ids{5, 6, 7, 0, 0}, mask{1, 1, 1, 0, 0}, labels{-100, 6, 7, -100, -100};
  TokenRow row = token_row(0, ids);
  row.attention_mask = mask;
  row.labels = labels;
  MicroBatch batch = make_micro_batch({row}, kLm);
  EXPECT_EQ(numbers(batch.input_ids), (Numbers{5, 6, 7}));
  EXPECT_EQ(numbers(batch.targets), (Numbers{6, 7, -100}));
  EXPECT_FALSE(batch.key_mask.defined());
  EXPECT_EQ(batch.num_targets, 2);
}

TEST(MicroBatches, MaskedTokensThatStillPredictStay) {
  // HF shifts labels, not masks: token 2 is padding but its target is label 3.
  Ids ids{5, 6, 0, 0, 0}, mask{1, 1, 0, 0, 0}, labels{5, 6, 0, 9, -100};
  TokenRow row = token_row(0, ids);
  row.attention_mask = mask;
  row.labels = labels;
  MicroBatch batch = make_micro_batch({row}, kLm);
  EXPECT_EQ(numbers(batch.input_ids), (Numbers{5, 6, 0}));
  EXPECT_EQ(numbers(batch.targets), (Numbers{6, 0, 9}));
  EXPECT_EQ(numbers(batch.key_mask), (Numbers{1, 1, 0}));
  EXPECT_EQ(batch.num_targets, 3);
  EXPECT_EQ(count_targets(row, kLm), 3);
}

TEST(MicroBatches, InteriorMaskAndOriginalColumns) {
  Ids ids{0, 0, 5, 6}, mask{0, 0, 1, 1};
  TokenRow row = token_row(0, ids);
  row.attention_mask = mask;
  for (Task task : {kLm, kCls}) {
    MicroBatch batch = make_micro_batch({row}, task);
    EXPECT_EQ(numbers(batch.key_mask), (Numbers{0, 0, 1, 1}));
    EXPECT_EQ(numbers(batch.positions), (Numbers{0, 1, 2, 3}));
  }
}

TEST(MicroBatches, DocumentsApart) {
  Ids ids{1, 2, 3, 4, 5, 6};
  TokenRow row = token_row(0, ids);
  row.document_starts = {3, 5};
  MicroBatch batch = make_micro_batch({row, row}, kLm);
  EXPECT_EQ(batch.row_offsets, (Numbers{0, 6, 12}));
  EXPECT_EQ(batch.segment_offsets, (Numbers{0, 3, 5, 6, 9, 11, 12}));
  EXPECT_EQ(numbers(batch.positions), (Numbers{0, 1, 2, 0, 1, 0, 0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(numbers(batch.targets), (Numbers{2, 3, -100, 5, -100, -100, 2, 3, -100, 5, -100, -100}));
  EXPECT_EQ(batch.num_targets, 2 * (2 + 1 + 0));  // sum of (length - 1)
  // The same targets as its documents in rows of their own.
  Ids a{1, 2, 3}, b{4, 5}, c{6};
  MicroBatch apart = make_micro_batch({token_row(0, a), token_row(1, b), token_row(2, c)}, kLm);
  EXPECT_TRUE(apart.targets.equal(batch.targets.slice(0, 0, 6)));
  EXPECT_TRUE(apart.positions.equal(batch.positions.slice(0, 0, 6)));
  EXPECT_EQ(Numbers(batch.segment_offsets.begin(), batch.segment_offsets.begin() + 4), apart.segment_offsets);
}

TEST(MicroBatches, Classification) {
  Ids a{5, 6, 0}, mask{1, 1, 0}, types{0, 1, 0}, b{7};
  TokenRow first = token_row(3, a), second = token_row(9, b);
  first.attention_mask = mask;
  first.token_types = types;
  first.label_class = 2;
  second.label_class = 0;
  MicroBatch batch = make_micro_batch({first, second}, kCls);
  EXPECT_EQ(numbers(batch.input_ids), (Numbers{5, 6, 7}));
  EXPECT_EQ(numbers(batch.token_types), (Numbers{0, 1, 0}));
  EXPECT_EQ(numbers(batch.targets), (Numbers{2, 0}));
  EXPECT_EQ(batch.num_targets, 2);
  EXPECT_FALSE(batch.key_mask.defined());
  first.label_class = second.label_class = -1;
  batch = make_micro_batch({first, second}, kCls);
  EXPECT_FALSE(batch.targets.defined());
  EXPECT_EQ(batch.num_targets, 0);
}

TEST(MicroBatches, NoRows) {
  for (Task task : {kLm, kCls}) {
    MicroBatch batch = make_micro_batch(std::vector<TokenRow>{}, task);
    EXPECT_TRUE(batch.empty());
    EXPECT_EQ(batch.num_rows(), 0);
    EXPECT_EQ(batch.num_tokens(), 0);
    EXPECT_EQ(batch.input_ids.numel(), 0);
    EXPECT_EQ(batch.targets.numel(), 0);
    EXPECT_EQ(batch.row_offsets, Numbers{0});
    EXPECT_EQ(batch.segment_offsets, Numbers{0});
  }
}

TEST(MicroBatches, TargetsOfUnequalRows) {  // the 12 lengths of the invariants' sample set
  std::vector<Ids> ids;
  std::vector<TokenRow> rows;
  for (size_t length : {3, 24, 7, 1, 15, 9, 24, 2, 11, 5, 18, 4}) ids.emplace_back(length, 1);
  for (size_t r = 0; r < ids.size(); ++r) rows.push_back(token_row(static_cast<int64_t>(r), ids[r]));
  MicroBatch batch = make_micro_batch(rows, kLm);
  EXPECT_EQ(batch.num_tokens(), 123);
  EXPECT_EQ(batch.num_targets, 111);
}

class MicroBatchesOfDataset : public DataTest {};

TEST_F(MicroBatchesOfDataset, RowsInTheOrderAsked) {
  Dataset data =
      load(write("a.jsonl",
                 "{\"input_ids\":[5,6,7]}\n{\"input_ids\":[8,9],\"labels\":[-100,-100]}\n{\"input_ids\":[4,3],\"attention_mask\":[1,0]}\n"),
           kLm);
  Numbers asked{2, 0, 1};
  MicroBatch batch = make_micro_batch(data, asked, kLm);
  EXPECT_EQ(batch.sample_ids, asked);
  EXPECT_EQ(numbers(batch.input_ids), (Numbers{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(batch.num_targets, 3);
  EXPECT_EQ(count_targets(data, asked, kLm), 3);
  EXPECT_EQ(count_tokens(data, asked), 6);
}

// Property: targets counted without tensors, counted by the batch, and found in its tensor agree, for any masks, labels and documents.
TEST(MicroBatches, CountsAgree) {
  uint64_t state = 7;
  auto random = [&](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int32_t>((state >> 33) % n);
  };
  for (int round = 0; round < 500; ++round) {
    size_t length = 1 + static_cast<size_t>(random(10));
    Ids ids, mask, labels;
    TokenRow row;
    for (size_t i = 0; i < length; ++i) {
      ids.push_back(random(50));
      mask.push_back(i == 0 || random(3) > 0);
      labels.push_back(random(2) ? -100 : random(50));
      if (i > 0 && random(4) == 0) row.document_starts.push_back(static_cast<int32_t>(i));
    }
    row.ids = ids;
    if (random(2)) row.attention_mask = mask;
    if (random(2)) row.labels = labels;
    MicroBatch batch = make_micro_batch({row, row}, kLm);
    int64_t in_tensor = (batch.targets != kIgnoredTarget).sum().item<int64_t>();
    ASSERT_EQ(batch.num_targets, in_tensor);
    ASSERT_EQ(2 * count_targets(row, kLm), in_tensor);
    ASSERT_EQ(2 * count_kept_tokens(row, kLm), batch.num_tokens());
    ASSERT_EQ(batch.segment_offsets.back(), batch.row_offsets.back());
  }
}

}  // namespace
}  // namespace plait
