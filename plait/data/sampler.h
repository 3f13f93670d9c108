// Which rows an optimizer step trains on, and which rank gets which of them. Order is a function of (seed, epoch) alone; the rows of
// a step of (seed, batch size, step): never of the layout. Position of a run = one number, samples consumed. No communication.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/plan/partition.h"

namespace plait {

// Above this many rows an epoch is ordered by a keyed permutation instead of a sort.
constexpr int64_t kMaxSortedRows = int64_t{1} << 24;

// Order of the rows of each epoch. Holds the order of one epoch at a time; not thread safe.
class EpochOrder {
 public:
  // shuffle = false: file order in every epoch. sort_limit exists for tests.
  EpochOrder(int64_t num_rows, int64_t seed, bool shuffle, int64_t sort_limit = kMaxSortedRows);

  // Row at `position` (0..num_rows-1) of `epoch`. Each epoch visits every row exactly once.
  int64_t row(int64_t epoch, int64_t position);

  int64_t num_rows() const { return num_rows_; }
  // For the log: how the order is made, in words anyone can redo it by.
  std::string describe() const;

 private:
  enum class Kind { kFileOrder, kSorted, kPermutation };

  void sort_epoch(int64_t epoch);
  int64_t permute(int64_t position) const;

  int64_t num_rows_, seed_;
  Kind kind_;
  int64_t epoch_ = -1;            // the one held below
  std::vector<uint32_t> sorted_;  // kSorted
  uint64_t key_ = 0;              // kPermutation
};

// The steps of a whole run, agreed before it starts.
struct StepPlan {
  int64_t num_rows = 0;
  int64_t batch_size = 0;
  int64_t steps_per_epoch = 0;  // ceil(num_rows / batch_size): the last step of an epoch takes what is left
  int64_t num_steps = 0;        // of the run

  int64_t epoch_of_step(int64_t step) const { return step / steps_per_epoch; }
  // Positions of the step's rows in its epoch.
  Span positions_of_step(int64_t step) const;
  // Samples consumed before `step` (0-based): the position that a checkpoint keeps.
  int64_t samples_before_step(int64_t step) const;
  // The step that starts at this position. Throws Error(kUsage) when none does: the batch size is not the one of the run that stopped.
  int64_t step_at(int64_t samples) const;
};

// max_steps > 0 wins over max_epochs. Throws Error(kData) when there are no rows, Error(kUsage) for sizes below 1.
StepPlan plan_steps(int64_t num_rows, int64_t batch_size, int64_t max_epochs, int64_t max_steps);

// Row ids of a step, in global order: the same on every rank of every layout.
std::vector<int64_t> rows_of_step(const StepPlan& plan, EpochOrder& order, int64_t step);

// Which of the `num_rows` rows of a step are micro-batch `micro_batch_index` of data rank `dp_rank`: contiguous, data rank 0's
// micro-batches first, then rank 1's, ...; sizes differ by at most one and may be 0.
Span micro_batch_span(int64_t num_rows, int64_t dp_size, int64_t num_micro_batches, int64_t dp_rank, int64_t micro_batch_index);

// The row ids of one micro-batch of a step.
std::vector<int64_t> rows_of_micro_batch(const std::vector<int64_t>& step_rows, int64_t dp_size, int64_t num_micro_batches, int64_t dp_rank,
                                         int64_t micro_batch_index);

}  // namespace plait
