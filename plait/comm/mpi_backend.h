// MpiBackend: a c10d Backend over MPI (OpenMPI or MPICH, plait/comm/mpi_plugin.h), one communicator a group. MPI moves bytes; the sums are
// plait's own, over group rank 0, 1, 2 ... (16-bit types in fp32, one rounding): the same bits on all ranks, in every run, and the same as
// ShmBackend's. An all-reduce gathers everything where that is small; else each rank sums its part of every piece, then the parts are
// gathered. Works are asynchronous; they move on inside wait() or isCompleted() of any operation of the rank, collectives of a group one
// after the other. CPU tensors, contiguous.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "plait/comm/mpi_rank.h"
#include "plait/comm/reduce_kernels.h"

namespace plait::detail {

enum class MpiKind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier };

struct MpiCollective {
  MpiKind kind = MpiKind::kBarrier;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  at::Tensor input, output;
  enum class State { kBegin, kExchange, kSpread } state = State::kBegin;
  int64_t position = 0, piece = 0;  // elements of what each member gives
  MpiRequest* request = nullptr;
  bool complete = false;
  std::string broken;      // why it can never complete
  bool is_misuse = false;  // the reason is a wrong call, not a lost peer
};

struct MpiMessage {
  at::Tensor tensor;
  MpiRequest* request = nullptr;
  bool complete = false;
  std::string broken;
  bool is_misuse = false;
};

class MpiBackend : public c10d::Backend, private MpiProgress {
 public:
  // Bytes of a member that one exchange moves at most; a longer tensor goes in pieces of this.
  static constexpr int64_t kPieceBytes = 4 << 20;

  // How its operations are used.
  enum class Use {
    kAtWill,
    kOneByOne,  // each is waited for where it begins
  };

  // Collective over `members` (global ranks by group rank). tag: the same on all of them, another for each group of a rank.
  MpiBackend(std::shared_ptr<MpiRank> rank, std::vector<int64_t> members, int group_rank, int tag, Use use = Use::kAtWill);
  ~MpiBackend() override;

  const std::string getBackendName() const override { return "mpi"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  // Rows of the first dimension, shared out by the numbers given, or evenly where there are none.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& rows_got,
                                               std::vector<int64_t>& rows_given,
                                               const c10d::AllToAllOptions& = c10d::AllToAllOptions()) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;

 private:
  bool progress() override;
  bool idle() const override { return use_ == Use::kOneByOne || (collectives_.empty() && messages_.empty()); }
  bool progress_collectives();
  bool step(MpiCollective& c);  // false: waits for peers
  void begin_piece(MpiCollective& c);
  void reduce_piece(MpiCollective& c);
  void end_piece(MpiCollective& c);
  bool one_phase(const MpiCollective& c) const;
  std::vector<int> part_bytes(const MpiCollective& c) const;
  char* staging(int64_t bytes);
  c10::intrusive_ptr<c10d::Work> start(MpiKind kind, const at::Tensor& input, const at::Tensor& output, c10d::OpType type,
                                       Reduction reduction = Reduction::kSum, int root = 0);
  c10::intrusive_ptr<c10d::Work> start_message(const at::Tensor& tensor, int peer, int tag, bool is_send);

  std::shared_ptr<MpiRank> own_;
  const MpiPlugin& mpi_;
  std::vector<int64_t> members_;
  MpiGroup* group_;
  const Use use_;
  std::deque<std::shared_ptr<MpiCollective>> collectives_;
  std::list<std::shared_ptr<MpiMessage>> messages_;  // not over yet; they keep their tensors
  at::Tensor staging_;
};

}  // namespace plait::detail
