// Gathering and summing of rows cut into messages between pairs of ranks, so that the caller computes between the pieces: the "p2p" style
// of train.comm.priority. Every partial row goes straight to the rank that owns it, which sums in group rank order (16-bit types in fp32,
// rounded once): the bits of the shared-memory and in-process collectives, not those of a sum that grows on its way round a ring.
// Rank rule: all members make the same objects and calls in the same order. Messages on one process group must not mix with other sends
// of the tags kRowTag .. kRowTag + 9. Pieces may be uneven or empty; all members know all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "plait/comm/process_group.h"
#include "plait/plan/partition.h"

namespace plait {

constexpr int kRowTag = 9000;

// Piece of `num_rows` rows of each member: split_evenly.
std::vector<Span> even_rows(int64_t num_rows, int64_t members);
// `rows` rows of every member, behind each other.
std::vector<Span> equal_rows(int64_t rows, int64_t members);

// Done when all of `works` are.
WorkPtr all_of(std::vector<WorkPtr> works);

// out = parts[0] op parts[1] op ..., in this order; sums of 16-bit types in fp32, rounded once. out may be one of the parts.
void reduce_in_order(const std::vector<at::Tensor>& parts, at::Tensor out, ReduceOp op);

// Own piece of `whole` [rows, ...] (contiguous) goes to every member, theirs come into their places. The own piece must stand there already.
WorkPtr share_rows(ProcessGroup& group, const at::Tensor& whole, const std::vector<Span>& pieces, int tag = kRowTag);

// All-gather round the ring: while the caller works on one piece, the next comes from the left neighbour and this one goes on to the right.
class RowGather {
 public:
  // whole [rows, ...], contiguous, own piece in its place. beside false: next() returns when the next piece is there too.
  RowGather(ProcessGroup& group, at::Tensor whole, std::vector<Span> pieces, bool beside);
  // The piece to work on now; size() calls give every piece once, the own one first. Blocks until it is there.
  Span next();
  // After the last next(): the neighbour has what it needs; the memory may change.
  void finish();

 private:
  ProcessGroup& group_;
  at::Tensor whole_;
  std::vector<Span> pieces_;
  bool beside_;
  int64_t step_ = 0;
  WorkPtr coming_;
  std::vector<WorkPtr> sending_;
};

// Reduce-scatter: partial rows go to their owners one member after the other, the own ones come last.
//   for (step = 0 .. size - 1) give(step, partial rows [pieces[owner(step)].size, ...] for owner(step));  sum();  finish();
class RowScatterSum {
 public:
  // row_shape: what follows the rows, {} for flat pieces. beside false: give() returns when the piece that crosses it has come.
  RowScatterSum(ProcessGroup& group, std::vector<Span> pieces, std::vector<int64_t> row_shape, const at::TensorOptions& options,
                bool beside, ReduceOp op = ReduceOp::kSum);
  int64_t owner(int64_t step) const { return (group_.rank() + 1 + step) % group_.size(); }
  // part: contiguous, untouched until finish().
  void give(int64_t step, at::Tensor part);
  // Waits for the others' parts and reduces own rows into `out` (contiguous; may be the part that this rank gave for itself).
  void sum(at::Tensor out);
  // Others have taken what was given. Call it as late as the memory allows.
  void finish() { outgoing()->wait(); }
  WorkPtr incoming() const { return all_of(coming_); }
  WorkPtr outgoing() const { return all_of(sending_); }

 private:
  void receive_from(int64_t member);
  // Of the part that crosses give(step).
  int64_t giver(int64_t step) const { return (group_.rank() + 2 * group_.size() - 1 - step) % group_.size(); }
  ProcessGroup& group_;
  std::vector<Span> pieces_;
  std::vector<at::Tensor> parts_;  // of own rows, by member
  std::vector<at::Tensor> given_;  // alive until they are sent
  std::vector<WorkPtr> sending_, coming_, coming_from_;
  bool beside_;
  ReduceOp op_;
};

}  // namespace plait
