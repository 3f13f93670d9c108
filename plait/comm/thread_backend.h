// ThreadBackend: a c10d Backend whose ranks are threads of this process and read each other's tensors (ThreadHub).
// Results are bit-equal on all ranks and do not depend on timing: sums run over rank 0, 1, 2 ... CPU tensors, contiguous.
// Works are asynchronous; an operation completes inside wait() or isCompleted() of some member.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>
#include <vector>

#include "plait/comm/thread_hub.h"

namespace plait::detail {

class ThreadBackend : public c10d::Backend {
 public:
  ThreadBackend(std::shared_ptr<ThreadHub> hub, int rank) : c10d::Backend(rank, hub->size()), hub_(std::move(hub)) {}

  const std::string getBackendName() const override { return "threads"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;

 private:
  c10::intrusive_ptr<c10d::Work> start(CollectiveCall call, c10d::OpType type);
  c10::intrusive_ptr<c10d::Work> start_message(HubMessage message, c10d::OpType type);
  std::shared_ptr<ThreadHub> hub_;
  uint64_t sequence_ = 0;
};

}  // namespace plait::detail
