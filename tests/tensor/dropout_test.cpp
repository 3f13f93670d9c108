#include "plait/tensor/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plait/base/error.h"

namespace plait {
namespace {

MicroBatch batch_of(std::vector<int64_t> lengths, std::vector<int64_t> sample_ids) {
  MicroBatch batch;
  batch.row_offsets = {0};
  for (int64_t length : lengths) batch.row_offsets.push_back(batch.row_offsets.back() + length);
  batch.segment_offsets = batch.row_offsets;
  batch.sample_ids = std::move(sample_ids);
  return batch;
}

at::Tensor mask_rows(const std::vector<uint64_t>& keys, int64_t columns, double p, int64_t first = 0) {
  return dropout_rows(at::ones({static_cast<int64_t>(keys.size()), columns}), keys, p, first).ne(0).to(at::kDouble);
}

at::Tensor attention(const std::vector<uint64_t>& keys, int64_t heads, int64_t columns, double p, int64_t first_head, int64_t first_key) {
  at::Tensor mask = at::empty({heads, static_cast<int64_t>(keys.size()), columns});
  dropout_mask_attention(mask, keys.data(), p, first_head, first_key);
  return mask;
}

// 5 standard deviations of a mean of n independent 0/1 draws.
double five_sigma(double p, double n) { return 5.0 * std::sqrt(p * (1.0 - p) / n); }

TEST(Dropout, KeepRateAndScale) {
  auto keys = row_keys(7, 3, batch_of({400, 600}, {11, 12}), 2, DropoutSite::kMlpOutput);
  for (double p : {0.1, 0.5, 0.9}) {
    at::Tensor y = dropout_rows(at::ones({1000, 301}, at::kDouble), keys, p);
    at::Tensor kept = y.ne(0);
    EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 1.0 - p, five_sigma(p, 301000)) << p;
    EXPECT_TRUE(at::allclose(y.masked_select(kept), at::full({}, 1.0 / (1.0 - p), at::kDouble)));
    // Every row and every column on its own too (5 sigma of 301 and of 1000 draws).
    EXPECT_LT((kept.to(at::kDouble).mean(1) - (1.0 - p)).abs().max().item<double>(), five_sigma(p, 301)) << p;
    EXPECT_LT((kept.to(at::kDouble).mean(0) - (1.0 - p)).abs().max().item<double>(), five_sigma(p, 1000)) << p;
  }
}

// Masks that differ in one coordinate agree as often as independent ones: (1-p)^2 + p^2.
TEST(Dropout, IndependentAcrossCoordinates) {
  const double p = 0.3, agree = 0.7 * 0.7 + 0.3 * 0.3;
  MicroBatch batch = batch_of({200, 200}, {5, 6});
  auto mask = [&](uint64_t seed, uint64_t step, const MicroBatch& b, int64_t layer, DropoutSite site) {
    return mask_rows(row_keys(seed, step, b, layer, site), 300, p);
  };
  at::Tensor base = mask(1, 1, batch, 1, DropoutSite::kMlpOutput);
  const std::vector<std::pair<const char*, at::Tensor>> others = {
      {"seed", mask(2, 1, batch, 1, DropoutSite::kMlpOutput)},
      {"step", mask(1, 2, batch, 1, DropoutSite::kMlpOutput)},
      {"sample", mask(1, 1, batch_of({200, 200}, {7, 8}), 1, DropoutSite::kMlpOutput)},
      {"swapped samples", mask(1, 1, batch_of({200, 200}, {6, 5}), 1, DropoutSite::kMlpOutput)},
      {"layer", mask(1, 1, batch, 2, DropoutSite::kMlpOutput)},
      {"site", mask(1, 1, batch, 1, DropoutSite::kAttentionOutput)},
      {"layer and site swapped", mask(1, 1, batch, 4, static_cast<DropoutSite>(1))},
      {"position", base.roll(1, 0)},
      {"channel", base.roll(1, 1)},
      {"channel pair", base.roll(2, 1)},
  };
  for (const auto& [name, other] : others)
    EXPECT_NEAR(base.eq(other).to(at::kDouble).mean().item<double>(), agree, 5.0 * std::sqrt(agree * (1 - agree) / 120000)) << name;
  EXPECT_FALSE(at::equal(mask(2, 5, batch, 1, DropoutSite::kMlpOutput), mask(5, 2, batch, 1, DropoutSite::kMlpOutput)));
}

TEST(Dropout, SameMaskWhateverTheSplit) {
  MicroBatch both = batch_of({9, 5}, {40, 41});
  auto keys = row_keys(3, 4, both, 1, DropoutSite::kAttentionOutput);
  at::Tensor whole = mask_rows(keys, 37, 0.4);
  // Another micro-batch: sample 41 alone, and next to another row of another length.
  EXPECT_TRUE(at::equal(mask_rows(row_keys(3, 4, batch_of({5}, {41}), 1, DropoutSite::kAttentionOutput), 37, 0.4), whole.narrow(0, 9, 5)));
  auto other = row_keys(3, 4, batch_of({2, 5}, {7, 41}), 1, DropoutSite::kAttentionOutput);
  EXPECT_TRUE(at::equal(mask_rows(other, 37, 0.4).narrow(0, 2, 5), whole.narrow(0, 9, 5)));
  // Rows (sequence parallel) and columns (tensor parallel, odd borders too).
  for (int64_t begin : {0, 3, 9}) {
    auto part = site_keys(token_keys(3, 4, both), 1, DropoutSite::kAttentionOutput, Span{begin, 5});
    EXPECT_TRUE(at::equal(mask_rows(part, 37, 0.4), whole.narrow(0, begin, 5)));
  }
  for (int64_t first : {0, 1, 2, 17, 36})
    for (int64_t size : {0, 1, 2, 5}) {
      if (first + size > 37) continue;
      EXPECT_TRUE(at::equal(mask_rows(keys, size, 0.4, first), whole.narrow(1, first, size))) << first << " " << size;
    }
}

TEST(Dropout, AttentionMaskWhateverTheSplit) {
  auto keys = row_keys(3, 4, batch_of({13}, {40}), 1, DropoutSite::kAttentionProbabilities);
  at::Tensor whole = attention(keys, 6, 13, 0.25, 0, 0);
  EXPECT_TRUE(at::equal(attention(keys, 2, 13, 0.25, 4, 0), whole.narrow(0, 4, 2)));
  for (int64_t first : {1, 4, 5}) {
    std::vector<uint64_t> queries(keys.begin() + first, keys.end());
    at::Tensor part = attention(queries, 6, 13 - first, 0.25, 0, first);
    EXPECT_TRUE(at::equal(part, whole.narrow(1, first, 13 - first).narrow(2, first, 13 - first)));
  }
  // Heads, queries and keys are independent of each other.
  auto many = row_keys(3, 4, batch_of({200}, {40}), 1, DropoutSite::kAttentionProbabilities);
  at::Tensor big = attention(many, 4, 200, 0.25, 0, 0).ne(0);
  const double agree = 0.75 * 0.75 + 0.25 * 0.25, bound = 5.0 * std::sqrt(agree * (1 - agree) / 160000);
  for (int64_t axis : {0, 1, 2}) EXPECT_NEAR(big.eq(big.roll(1, axis)).to(at::kDouble).mean().item<double>(), agree, bound) << axis;
  EXPECT_NEAR(big.eq(big.transpose(1, 2)).to(at::kDouble).mean().item<double>(), agree, bound + 1.0 / 200);
}

TEST(Dropout, BackwardDrawsTheSameMask) {
  auto keys = row_keys(1, 2, batch_of({6}, {3}), 0, DropoutSite::kEmbedding);
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    at::Tensor x = at::full({6, 11}, 2.0, type).set_requires_grad(true);
    at::Tensor y = dropout_rows(x, keys, 0.5, 5);
    y.sum().backward();
    EXPECT_TRUE(at::equal(x.grad() * 2.0, y.detach()));
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(at::equal(y.detach().to(at::kFloat), dropout_rows(at::full({6, 11}, 2.0), keys, 0.5, 5)));
  }
}

TEST(Dropout, Edges) {
  at::Tensor x = at::ones({2, 3});
  std::vector<uint64_t> keys = {1, 2};
  EXPECT_TRUE(dropout_rows(x, keys, 0.0).is_same(x));
  EXPECT_EQ(dropout_rows(at::ones({0, 3}), {}, 0.5).numel(), 0);
  for (double p : {-0.1, 1.0, std::nan("")}) EXPECT_THROW(dropout_rows(x, keys, p), Error);
  EXPECT_THROW(dropout_rows(x, {1}, 0.5), Error);
  // A head's keys do not repeat a token's.
  MicroBatch batch = batch_of({4}, {9});
  EXPECT_NE(site_keys(sample_keys(1, 1, batch), 0, DropoutSite::kHead)[0], row_keys(1, 1, batch, 0, DropoutSite::kEmbedding)[0]);
}

}  // namespace
}  // namespace plait
