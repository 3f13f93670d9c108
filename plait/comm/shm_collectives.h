// ShmCollectives: the collectives of one shared-memory group. Tensors are cut into pieces; a rank stages a piece in its slot, says so in
// its counters, and goes on when the counters of the others allow. Small operations meet once: everybody reads all slots and sums. Large
// sums meet twice: each rank sums its part of the piece, then all copy the parts. Slots alternate over all calls of the group and are used
// again when every rank is done with them. A large input in lent memory (ShmLoans) is not staged but read in place, on this rank or that;
// its operation is complete when all have read it. Sums run over group rank 0, 1, 2 ... (16-bit types in fp32, rounded once): the same bits on all
// ranks and in every run. Several operations may be under way; one that touches the memory of an earlier one waits for it.
// Rank rule: all members post the same operations in the same order. Thread rule: called with the ShmRank's lock held.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/comm/reduce_kernels.h"
#include "plait/comm/shm_loans.h"
#include "plait/comm/shm_rank.h"

namespace plait::detail {

enum class ShmKind : int32_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier };

// What must agree on all ranks of a collective.
struct ShmCall {
  ShmKind kind = ShmKind::kBarrier;
  Reduction reduction = Reduction::kSum;
  int32_t root = 0;
  int32_t type = 0;
  int64_t elements = 0;  // of the input
  bool operator==(const ShmCall&) const = default;
};

struct ShmCollective {
  ShmCall call;
  at::Tensor input, output;
  uint64_t sequence = 0;
  int64_t element_size = 1;
  int64_t whole = 0;             // elements that are cut into pieces
  int64_t piece = 0;             // elements of each but the last
  uint64_t num_pieces = 1;       // a barrier has one without elements
  uint64_t first_piece = 0;      // number of its first piece in the group
  uint64_t first_reduction = 0;  // among the pieces of two meetings
  bool two_meetings = false;
  bool after_others = false;                       // shares memory with an operation before it
  uint64_t staged = 0, reduced = 0, finished = 0;  // pieces
  ShmLoan own;                                     // of its input, when the peers read that in place
  std::vector<char*> lent;                         // by group rank: the peers' inputs; null = in their slots
  bool complete = false;
  std::string broken;
};

class ShmCollectives {
 public:
  // Bytes of shared memory, zeros at first, that a group of `size` ranks needs for them.
  static size_t area_bytes(int size);
  // members: global ranks. area: the same memory on all members.
  ShmCollectives(ShmRank& own, const std::vector<int64_t>& members, int rank, char* area);

  std::shared_ptr<ShmCollective> post(ShmCall call, const at::Tensor& input, const at::Tensor& output);
  bool progress();  // true when anything moved
  // Who did least of what is under way, for a message; "" when nothing is.
  std::string behind() const;

 private:
  struct Seat;
  bool step();
  bool retire_front();
  bool finish_next();
  bool reduce_next();
  bool stage_next();
  void stage(ShmCollective& c, uint64_t index);
  void reduce_part(ShmCollective& c, uint64_t index);
  void finish(ShmCollective& c, uint64_t index);
  void gather_parts(ShmCollective& c, uint64_t index);
  void sum_slots(ShmCollective& c, uint64_t index);
  bool begin_reading(ShmCollective& c);
  bool calls_agree(ShmCollective& c) const;
  void reduce(const ShmCollective& c, int64_t elements);
  void publish(std::atomic<uint64_t> Seat::*counter);
  uint64_t least(std::atomic<uint64_t> Seat::*counter) const;
  bool all_done(uint64_t pieces);
  const char* input_of(const ShmCollective& c, int rank, uint64_t index, int64_t in_slot, int64_t in_tensor) const;
  void ring(int rank) const { own_.ring(members_[static_cast<size_t>(rank)]); }
  char* slot(int rank, uint64_t piece) const;
  char* result(uint64_t piece) const;

  ShmRank& own_;
  const std::vector<int64_t>& members_;
  const int size_, rank_;
  Seat* seats_;
  char *slots_, *results_;
  std::deque<std::shared_ptr<ShmCollective>> operations_;
  uint64_t sequence_ = 0, pieces_ = 0, reductions_ = 0;  // posted so far
  std::vector<const void*> inputs_;                      // of one reduction
  std::vector<void*> outputs_;
};

}  // namespace plait::detail
