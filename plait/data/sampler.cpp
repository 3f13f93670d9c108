#include "plait/data/sampler.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>

#include "plait/base/error.h"
#include "plait/base/random.h"
#include "plait/base/sha256.h"

namespace plait {

namespace {

constexpr int kFeistelRounds = 6;

uint64_t first_8_bytes(const Sha256Digest& digest) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | digest[i];
  return value;
}

// sha256("SEED:EPOCH:ROW") for many rows: the prefix is written once.
class RowHash {
 public:
  RowHash(int64_t seed, int64_t epoch) : text_(cat(seed, ":", epoch, ":")), prefix_size_(text_.size()) { text_.resize(prefix_size_ + 20); }
  Sha256Digest operator()(int64_t row) {
    char* end = std::to_chars(text_.data() + prefix_size_, text_.data() + text_.size(), row).ptr;
    return sha256(std::string_view(text_.data(), static_cast<size_t>(end - text_.data())));
  }

 private:
  std::string text_;
  size_t prefix_size_;
};

}  // namespace

EpochOrder::EpochOrder(int64_t num_rows, int64_t seed, bool shuffle, int64_t sort_limit)
    : num_rows_(num_rows), seed_(seed), kind_(!shuffle                 ? Kind::kFileOrder
                                              : num_rows <= sort_limit ? Kind::kSorted
                                                                       : Kind::kPermutation) {
  PLAIT_CHECK(num_rows >= 0 && sort_limit <= int64_t{1} << 32);
}

void EpochOrder::sort_epoch(int64_t epoch) {
  struct Keyed {
    uint64_t key;  // the first 8 bytes order all but equal prefixes
    uint32_t row;
  };
  RowHash hash(seed_, epoch);
  std::vector<Keyed> keyed(static_cast<size_t>(num_rows_));
  for (int64_t row = 0; row < num_rows_; ++row) keyed[row] = {first_8_bytes(hash(row)), static_cast<uint32_t>(row)};
  std::sort(keyed.begin(), keyed.end(),
            [&](const Keyed& a, const Keyed& b) { return a.key != b.key || a.row == b.row ? a.key < b.key : hash(a.row) < hash(b.row); });
  sorted_.resize(keyed.size());
  for (size_t i = 0; i < keyed.size(); ++i) sorted_[i] = keyed[i].row;
}

// Feistel network over the next even number of bits, walked until the value lies below num_rows: a bijection of 0..num_rows-1.
int64_t EpochOrder::permute(int64_t position) const {
  int half_bits = std::max(1, (static_cast<int>(std::bit_width(static_cast<uint64_t>(num_rows_ - 1))) + 1) / 2);
  uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits, right = value & mask;
    for (int round = 0; round < kFeistelRounds; ++round) {
      uint64_t mixed = left ^ (mix64(key_ ^ mix64(static_cast<uint64_t>(round) << 32 | right)) & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits | right;
  } while (value >= static_cast<uint64_t>(num_rows_));
  return static_cast<int64_t>(value);
}

int64_t EpochOrder::row(int64_t epoch, int64_t position) {
  PLAIT_CHECK(epoch >= 0 && position >= 0 && position < num_rows_);
  if (kind_ == Kind::kFileOrder) return position;
  if (epoch != epoch_) {
    if (kind_ == Kind::kSorted) sort_epoch(epoch);
    if (kind_ == Kind::kPermutation) key_ = first_8_bytes(sha256(cat(seed_, ":", epoch)));
    epoch_ = epoch;
  }
  return kind_ == Kind::kSorted ? sorted_[static_cast<size_t>(position)] : permute(position);
}

std::string EpochOrder::describe() const {
  switch (kind_) {
    case Kind::kFileOrder: return cat(num_rows_, " rows in file order in every epoch (shuffle: false)");
    case Kind::kSorted: return cat(num_rows_, " rows; epoch e in order of sha256(\"", seed_, ":e:ROW\")");
    case Kind::kPermutation: break;
  }
  return cat(num_rows_, " rows; epoch e in the order of the keyed permutation feistel", kFeistelRounds, "-mix64 with key sha256(\"", seed_,
             ":e\") (docs/data.md)");
}

Span StepPlan::positions_of_step(int64_t step) const {
  PLAIT_CHECK(step >= 0 && steps_per_epoch > 0);
  int64_t begin = step % steps_per_epoch * batch_size;
  return {begin, std::min(batch_size, num_rows - begin)};
}

int64_t StepPlan::samples_before_step(int64_t step) const {
  PLAIT_CHECK(step >= 0 && steps_per_epoch > 0);
  return epoch_of_step(step) * num_rows + step % steps_per_epoch * batch_size;
}

int64_t StepPlan::step_at(int64_t samples) const {
  PLAIT_CHECK(samples >= 0 && num_rows > 0);
  int64_t in_epoch = samples % num_rows;
  if (in_epoch % batch_size != 0) {
    throw_error(ExitCode::kUsage, "train.batch_size ", batch_size, ": ", samples, " samples were consumed, which is ", in_epoch,
                " rows into an epoch of ", num_rows,
                " and no whole number of batches. Resume with the batch size of the run that stopped, or one that divides ", in_epoch);
  }
  return samples / num_rows * steps_per_epoch + in_epoch / batch_size;
}

StepPlan plan_steps(int64_t num_rows, int64_t batch_size, int64_t max_epochs, int64_t max_steps) {
  if (num_rows <= 0) throw_error(ExitCode::kData, "the training data has no rows: nothing to train on");
  if (batch_size <= 0) throw_error(ExitCode::kUsage, "train.batch_size ", batch_size, " must be at least 1");
  if (max_steps <= 0 && max_epochs <= 0) throw_error(ExitCode::kUsage, "train.max_epochs ", max_epochs, " must be at least 1");
  StepPlan plan;
  plan.num_rows = num_rows;
  plan.batch_size = batch_size;
  plan.steps_per_epoch = (num_rows - 1) / batch_size + 1;
  plan.num_steps = max_steps > 0 ? max_steps : plan.steps_per_epoch * max_epochs;
  return plan;
}

std::vector<int64_t> rows_of_step(const StepPlan& plan, EpochOrder& order, int64_t step) {
  PLAIT_CHECK(order.num_rows() == plan.num_rows);
  Span positions = plan.positions_of_step(step);
  int64_t epoch = plan.epoch_of_step(step);
  std::vector<int64_t> rows(static_cast<size_t>(positions.size));
  for (int64_t i = 0; i < positions.size; ++i) rows[i] = order.row(epoch, positions.begin + i);
  return rows;
}

Span micro_batch_span(int64_t num_rows, int64_t dp_size, int64_t num_micro_batches, int64_t dp_rank, int64_t micro_batch_index) {
  PLAIT_CHECK(dp_rank >= 0 && dp_rank < dp_size && micro_batch_index >= 0 && micro_batch_index < num_micro_batches);
  return split_evenly(num_rows, dp_size * num_micro_batches, dp_rank * num_micro_batches + micro_batch_index);
}

std::vector<int64_t> rows_of_micro_batch(const std::vector<int64_t>& step_rows, int64_t dp_size, int64_t num_micro_batches, int64_t dp_rank,
                                         int64_t micro_batch_index) {
  Span span = micro_batch_span(static_cast<int64_t>(step_rows.size()), dp_size, num_micro_batches, dp_rank, micro_batch_index);
  return {step_rows.begin() + span.begin, step_rows.begin() + span.end()};
}

}  // namespace plait
