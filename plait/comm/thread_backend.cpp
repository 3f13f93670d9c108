#include "plait/comm/thread_backend.h"

#include "plait/base/error.h"

namespace plait::detail {
namespace {

// Operation: HubCollective or HubMessage.
template <class Operation>
class ThreadWork : public c10d::Work {
 public:
  ThreadWork(std::shared_ptr<ThreadHub> hub, std::shared_ptr<Operation> operation, int rank, c10d::OpType type)
      : c10d::Work(rank, type), hub_(std::move(hub)), operation_(std::move(operation)) {}

  bool isCompleted() override { return hub_->poll(*operation_); }
  bool wait(std::chrono::milliseconds) override {
    if constexpr (std::is_same_v<Operation, HubCollective>) {
      hub_->wait(*operation_, rank_);
    } else {
      hub_->wait(*operation_);
    }
    return true;
  }

 private:
  std::shared_ptr<ThreadHub> hub_;
  std::shared_ptr<Operation> operation_;
};

Reduction thread_reduction(const c10d::ReduceOp& op) { return reduction_of(op, "in-process"); }

void check_tensor(const at::Tensor& tensor) {
  PLAIT_CHECK(tensor.defined() && tensor.is_cpu() && tensor.is_contiguous(), "in-process collectives take contiguous CPU tensors");
}

}  // namespace

c10::intrusive_ptr<c10d::Work> ThreadBackend::start(CollectiveCall call, c10d::OpType type) {
  auto operation = hub_->enter(rank_, sequence_++, std::move(call));
  return c10::make_intrusive<ThreadWork<HubCollective>>(hub_, std::move(operation), rank_, type);
}

c10::intrusive_ptr<c10d::Work> ThreadBackend::start_message(HubMessage message, c10d::OpType type) {
  PLAIT_CHECK(message.source >= 0 && message.source < size_ && message.destination >= 0 && message.destination < size_ &&
                  message.source != message.destination,
              "message from group rank ", message.source, " to ", message.destination, " in a group of ", size_);
  auto operation = hub_->post(std::move(message));
  return c10::make_intrusive<ThreadWork<HubMessage>>(hub_, std::move(operation), rank_, type);
}

c10::intrusive_ptr<c10d::Work> ThreadBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  check_tensor(tensors.at(0));
  return start({CollectiveKind::kAllReduce, thread_reduction(options.reduceOp), 0, tensors[0], tensors[0]}, c10d::OpType::ALLREDUCE);
}

c10::intrusive_ptr<c10d::Work> ThreadBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) {
  check_tensor(input);
  check_tensor(output);
  PLAIT_CHECK(output.numel() == input.numel() * size_ && output.scalar_type() == input.scalar_type(), "all_gather of ", input.numel(),
              " elements from ", size_, " ranks into ", output.numel());
  return start({CollectiveKind::kAllGather, Reduction::kSum, 0, input, output}, c10d::OpType::_ALLGATHER_BASE);
}

c10::intrusive_ptr<c10d::Work> ThreadBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                   const c10d::ReduceScatterOptions& options) {
  check_tensor(input);
  check_tensor(output);
  PLAIT_CHECK(input.numel() == output.numel() * size_ && output.scalar_type() == input.scalar_type(), "reduce_scatter of ", input.numel(),
              " elements over ", size_, " ranks into ", output.numel());
  return start({CollectiveKind::kReduceScatter, thread_reduction(options.reduceOp), 0, input, output}, c10d::OpType::_REDUCE_SCATTER_BASE);
}

c10::intrusive_ptr<c10d::Work> ThreadBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  check_tensor(tensors.at(0));
  PLAIT_CHECK(options.rootRank >= 0 && options.rootRank < size_, "broadcast from group rank ", options.rootRank, " of ", size_);
  return start({CollectiveKind::kBroadcast, Reduction::kSum, options.rootRank, tensors[0], tensors[0]}, c10d::OpType::BROADCAST);
}

c10::intrusive_ptr<c10d::Work> ThreadBackend::barrier(const c10d::BarrierOptions&) {
  return start(CollectiveCall{}, c10d::OpType::BARRIER);
}

c10::intrusive_ptr<c10d::Work> ThreadBackend::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  check_tensor(tensors.at(0));
  return start_message({rank_, destination, tag, true, tensors[0], false, {}}, c10d::OpType::SEND);
}

c10::intrusive_ptr<c10d::Work> ThreadBackend::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  check_tensor(tensors.at(0));
  return start_message({source, rank_, tag, false, tensors[0], false, {}}, c10d::OpType::RECV);
}

}  // namespace plait::detail
