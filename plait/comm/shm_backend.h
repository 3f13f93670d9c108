// ShmBackend: a c10d Backend whose ranks are processes of one machine. Collectives go through slots in shared memory: a rank copies a
// piece of its tensor in, says so, waits until all did, and reads the others' pieces; two slots alternate over all calls of the group, so
// a fast rank never overwrites what a slow one still reads. Sums run over group rank 0, 1, 2 ... (16-bit types in fp32): the same bits on
// all ranks, in every run, and the same as ThreadBackend's. Works are asynchronous; they move on inside wait() or isCompleted() of any
// operation of the rank. CPU tensors, contiguous.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "plait/comm/reduce_kernels.h"
#include "plait/comm/shm_channel.h"
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
  enum class State { kStage, kStaged, kReduced } state = State::kStage;
  int64_t position = 0,
          piece = 0;  // elements of the side that is cut into pieces
  bool complete = false;
  std::string broken;
};

class ShmBackend : public c10d::Backend, private ShmProgress {
 public:
  // Collective over `members` (global ranks by group rank), all on one machine.
  ShmBackend(std::shared_ptr<ShmRank> rank, c10d::Store& store, std::vector<int64_t> members, int group_rank);
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;

 private:
  struct Area;  // the group's shared memory
  bool progress() override;
  bool progress_collectives();
  bool step(ShmCollective& c);  // false: waits for peers
  void stage(ShmCollective& c);
  void combine(ShmCollective& c);
  void reduce_own_part(ShmCollective& c);
  void advance(ShmCollective& c);
  bool check_calls(ShmCollective& c);
  void arrive();
  bool all_arrived() const;
  bool two_phases(const ShmCollective& c) const;
  std::pair<int64_t, int64_t> own_part(int64_t piece) const;
  char* slot(int rank) const;
  c10::intrusive_ptr<c10d::Work> start(ShmCall call, const at::Tensor& input, const at::Tensor& output, c10d::OpType type);
  c10::intrusive_ptr<c10d::Work> start_message(std::shared_ptr<ShmMessage> message, c10d::OpType type);

  std::shared_ptr<ShmRank> own_;
  std::vector<int64_t> members_;
  SharedMemory memory_;
  std::unique_ptr<Area> area_;
  std::deque<std::shared_ptr<ShmCollective>> collectives_;
  uint64_t sequence_ = 0;
  uint64_t arrivals_ = 0;  // own ones, of all pieces and phases so far
  uint64_t pieces_ = 0;    // staged so far: their parity picks the slot
  std::vector<ShmSender> senders_;
  std::vector<ShmReceiver> receivers_;
};

}  // namespace plait::detail
