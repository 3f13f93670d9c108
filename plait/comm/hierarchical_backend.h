// HierarchicalBackend: a c10d Backend over members on several machines, some of which hold more than one. Collectives go inside a machine by
// shared memory and between the machines' first members ("leaders") by Gloo or MPI; a message goes by what connects its pair. Sums are taken
// inside each machine in group order, then over the machines in the order in which the group names them first (16-bit types in fp32, rounded
// once, after the last sum): the same bits on all members and in every run, though not those of a group on one machine.
// Collectives run one after the other on a thread of the group's own; a member that waits keeps its shared-memory groups going.
// CPU tensors, contiguous.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plait/comm/mpi_beside_shm.h"
#include "plait/comm/reduce_kernels.h"
#include "plait/comm/shared_buffer.h"
#include "plait/comm/shm_rank.h"

namespace plait::detail {

// Group ranks of each machine, ascending; machines by their first member.
std::vector<std::vector<int>> members_by_machine(const std::vector<int64_t>& members, const ShmRank& own);

// The connections of one member.
struct HierarchyLinks {
  std::vector<std::vector<int>> machines;
  c10::intrusive_ptr<c10d::Backend> inner;    // the members of this machine; null when there is one
  c10::intrusive_ptr<c10d::Backend> leaders;  // the first member of each machine; null on others
  c10::intrusive_ptr<c10d::Backend> all;      // for messages between machines
  std::shared_ptr<MpiBesideShm> mpi;          // null where leaders and all are not MPI's
};

class HierarchicalBackend : public c10d::Backend, public BufferMaker {
 public:
  HierarchicalBackend(std::shared_ptr<ShmRank> own, HierarchyLinks links, int group_rank, int size);
  // Waits a moment for the operation under way; those not begun are dropped.
  ~HierarchicalBackend() override;

  const std::string getBackendName() const override { return "hierarchical"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  at::Tensor make_buffer(int64_t elements, at::ScalarType type) override { return own_->loans().lend(elements, type); }
  int64_t in_place_bytes() const override { return kInPlaceBytes; }

 private:
  class Steps;                           // the collectives, one after the other
  class Queue;                           // and the thread that runs them
  int local_rank(int group_rank) const;  // -1 on another machine
  c10::intrusive_ptr<c10d::Work> start(std::function<void(Steps&)> collective, c10d::OpType type);

  std::shared_ptr<ShmRank> own_;
  std::shared_ptr<MpiBesideShm> mpi_;
  c10::intrusive_ptr<c10d::Backend> inner_, all_;
  std::vector<int> local_;  // group ranks of this machine
  std::shared_ptr<Queue> queue_;
};

}  // namespace plait::detail
