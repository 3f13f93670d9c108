// ShmBackend: a c10d Backend whose ranks are processes of one machine: collectives (ShmCollectives) and a channel to each other member. The
// same bits on all ranks, in every run, and the same as ThreadBackend's. Works are asynchronous; they move on inside wait() or
// isCompleted() of any operation of the rank. CPU tensors, contiguous.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>
#include <vector>

#include "plait/comm/shared_buffer.h"
#include "plait/comm/shm_channel.h"
#include "plait/comm/shm_collectives.h"
#include "plait/comm/shm_rank.h"

namespace plait::detail {

class ShmBackend : public c10d::Backend, public BufferMaker, private ShmProgress {
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
  at::Tensor make_buffer(int64_t elements, at::ScalarType type) override { return own_->loans().lend(elements, type); }
  int64_t in_place_bytes() const override { return kInPlaceBytes; }

 private:
  bool progress() override;
  std::string behind() const override { return collectives_->behind(); }
  c10::intrusive_ptr<c10d::Work> start(ShmCall call, const at::Tensor& input, const at::Tensor& output, c10d::OpType type);
  c10::intrusive_ptr<c10d::Work> start_message(std::shared_ptr<ShmMessage> message, c10d::OpType type);

  std::shared_ptr<ShmRank> own_;
  std::vector<int64_t> members_;
  SharedMemory memory_;
  std::unique_ptr<ShmCollectives> collectives_;
  std::vector<ShmSender> senders_;
  std::vector<ShmReceiver> receivers_;
};

}  // namespace plait::detail
