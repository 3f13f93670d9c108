#include "plait/comm/shm_backend.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

Reduction shm_reduction(const c10d::ReduceOp& op) { return reduction_of(op, "shared-memory"); }

void check_shm_tensor(const at::Tensor& tensor) {
  PLAIT_CHECK(tensor.defined() && tensor.is_cpu() && tensor.is_contiguous(), "shared-memory collectives take contiguous CPU tensors");
}

// On all ranks alike and before anything is posted: later the error would come out of whatever operation makes progress.
void check_shm_sum(const at::Tensor& tensor) {
  check_shm_tensor(tensor);
  PLAIT_CHECK(can_reduce(tensor.scalar_type()), "no reduction for type ", c10::toString(tensor.scalar_type()));
}

// Operation: ShmCollective or ShmMessage.
template <class Operation>
class ShmWork : public c10d::Work {
 public:
  ShmWork(std::shared_ptr<ShmRank> own, std::shared_ptr<Operation> operation, std::vector<int64_t> needed, int rank, c10d::OpType type)
      : c10d::Work(rank, type), own_(std::move(own)), operation_(std::move(operation)), needed_(std::move(needed)) {}

  bool isCompleted() override {
    return own_->poll([&] { return over(); });
  }
  bool wait(std::chrono::milliseconds) override {
    own_->wait([&] { return over(); }, needed_);
    if (!operation_->broken.empty()) throw Error(ExitCode::kBug, operation_->broken);
    return true;
  }

 private:
  bool over() const { return operation_->complete || !operation_->broken.empty(); }
  std::shared_ptr<ShmRank> own_;
  std::shared_ptr<Operation> operation_;
  std::vector<int64_t> needed_;
};

}  // namespace

// what the collectives need | a ring for each ordered pair
ShmBackend::ShmBackend(std::shared_ptr<ShmRank> rank, c10d::Store& store, std::vector<int64_t> members, int group_rank)
    : c10d::Backend(group_rank, static_cast<int>(members.size())), own_(std::move(rank)), members_(std::move(members)) {
  const size_t before_rings = ShmCollectives::area_bytes(size_);
  const size_t bytes = before_rings + members_.size() * members_.size() * sizeof(ShmRing);
  if (group_rank == 0) {
    memory_ = SharedMemory::create(bytes);
    std::string address = memory_.address();
    store.set("shm", std::vector<uint8_t>(address.begin(), address.end()));
  } else {
    auto address = store.get("shm");
    memory_ = own_->attach(members_[0], std::string(address.begin(), address.end()), bytes);
  }
  collectives_ = std::make_unique<ShmCollectives>(*own_, members_, group_rank, memory_.data());
  auto* rings = reinterpret_cast<ShmRing*>(memory_.data() + before_rings);
  for (int peer = 0; peer < size_; ++peer) {
    senders_.emplace_back(rings + group_rank * size_ + peer, own_->loans());
    receivers_.emplace_back(rings + peer * size_ + group_rank, *own_, members_, peer);
  }
  own_->add(this);
  try {
    barrier(c10d::BarrierOptions())->wait();  // all have attached
  } catch (...) {
    own_->remove(this);  // no destructor will
    throw;
  }
  memory_.release_address();
}

ShmBackend::~ShmBackend() { own_->remove(this); }

bool ShmBackend::progress() {
  bool moved = collectives_->progress();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    auto at = static_cast<size_t>(peer);
    const bool wrote = !senders_[at].idle() && senders_[at].progress();
    const bool took = receivers_[at].progress();
    if (wrote || took) own_->ring(members_[at]);
    moved = moved || wrote || took;
  }
  return moved;
}

c10::intrusive_ptr<c10d::Work> ShmBackend::start(ShmCall call, const at::Tensor& input, const at::Tensor& output, c10d::OpType type) {
  std::shared_ptr<ShmCollective> operation;
  {
    std::lock_guard<std::mutex> lock(own_->mutex());
    operation = collectives_->post(call, input, output);
    collectives_->progress();
  }
  return c10::make_intrusive<ShmWork<ShmCollective>>(own_, operation, members_, rank_, type);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::start_message(std::shared_ptr<ShmMessage> message, c10d::OpType type) {
  PLAIT_CHECK(message->peer >= 0 && message->peer < size_ && message->peer != rank_, "message between group rank ", rank_, " and ",
              message->peer, " in a group of ", size_);
  const auto peer = static_cast<size_t>(message->peer);
  {
    std::lock_guard<std::mutex> lock(own_->mutex());
    if (message->is_send) senders_[peer].post(message);
    else receivers_[peer].post(message);
    progress();
  }
  return c10::make_intrusive<ShmWork<ShmMessage>>(own_, message, std::vector<int64_t>{members_[peer]}, rank_, type);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  check_shm_sum(tensors.at(0));
  return start({ShmKind::kAllReduce, shm_reduction(options.reduceOp)}, tensors[0], tensors[0], c10d::OpType::ALLREDUCE);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) {
  check_shm_tensor(input);
  check_shm_tensor(output);
  PLAIT_CHECK(output.numel() == input.numel() * size_ && output.scalar_type() == input.scalar_type(), "all_gather of ", input.numel(),
              " elements from ", size_, " ranks into ", output.numel());
  return start({ShmKind::kAllGather}, input, output, c10d::OpType::_ALLGATHER_BASE);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                const c10d::ReduceScatterOptions& options) {
  check_shm_sum(input);
  check_shm_tensor(output);
  PLAIT_CHECK(input.numel() == output.numel() * size_ && output.scalar_type() == input.scalar_type(), "reduce_scatter of ", input.numel(),
              " elements over ", size_, " ranks into ", output.numel());
  return start({ShmKind::kReduceScatter, shm_reduction(options.reduceOp)}, input, output, c10d::OpType::_REDUCE_SCATTER_BASE);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  check_shm_tensor(tensors.at(0));
  PLAIT_CHECK(options.rootRank >= 0 && options.rootRank < size_, "broadcast from group rank ", options.rootRank, " of ", size_);
  return start({ShmKind::kBroadcast, Reduction::kSum, static_cast<int32_t>(options.rootRank)}, tensors[0], tensors[0],
               c10d::OpType::BROADCAST);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::barrier(const c10d::BarrierOptions&) {
  return start({ShmKind::kBarrier}, at::Tensor(), at::Tensor(), c10d::OpType::BARRIER);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  check_shm_tensor(tensors.at(0));
  auto message = std::make_shared<ShmMessage>();
  message->peer = destination;
  message->tag = tag;
  message->is_send = true;
  message->tensor = tensors[0];
  return start_message(std::move(message), c10d::OpType::SEND);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  check_shm_tensor(tensors.at(0));
  auto message = std::make_shared<ShmMessage>();
  message->peer = source;
  message->tag = tag;
  message->tensor = tensors[0];
  return start_message(std::move(message), c10d::OpType::RECV);
}

}  // namespace plait::detail
