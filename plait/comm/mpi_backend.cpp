#include "plait/comm/mpi_backend.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

// Up to here the inputs of all members together are gathered and everyone sums everything: one exchange instead of two.
constexpr int64_t kMpiOnePhaseBytes = 128 << 10;
constexpr int kAllToAllTag = 32767;  // the largest that every MPI has

char* mpi_element(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

Reduction mpi_reduction(const c10d::ReduceOp& op) { return reduction_of(op, "MPI"); }

void check_mpi_tensor(const at::Tensor& tensor) {
  PLAIT_CHECK(tensor.defined() && tensor.is_cpu() && tensor.is_contiguous(), "MPI collectives take contiguous CPU tensors");
}

// Runs a call of MPI for an operation; what it throws is the operation's end, told by its own wait().
template <class Operation, class Call>
void mpi_guarded(Operation& operation, const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    operation.request = nullptr;
    operation.broken = error.what();
    operation.is_misuse = dynamic_cast<const std::logic_error*>(&error) != nullptr;
  }
}

// Operation: MpiCollective or MpiMessage.
template <class Operation>
class MpiWork : public c10d::Work {
 public:
  MpiWork(std::shared_ptr<MpiRank> own, std::shared_ptr<Operation> operation, int rank, c10d::OpType type)
      : c10d::Work(rank, type), own_(std::move(own)), operation_(std::move(operation)) {}

  bool isCompleted() override {
    return own_->poll([&] { return over(); });
  }
  bool wait(std::chrono::milliseconds) override {
    own_->wait([&] { return over(); });
    if (operation_->broken.empty()) return true;
    if (operation_->is_misuse) throw Error(ExitCode::kBug, operation_->broken);
    throw std::runtime_error(operation_->broken);
  }

 private:
  bool over() const { return operation_->complete || !operation_->broken.empty(); }
  std::shared_ptr<MpiRank> own_;
  std::shared_ptr<Operation> operation_;
};

// Several messages that are one operation.
class MpiMessagesWork : public c10d::Work {
 public:
  MpiMessagesWork(std::vector<c10::intrusive_ptr<c10d::Work>> messages, int rank, c10d::OpType type)
      : c10d::Work(rank, type), messages_(std::move(messages)) {}
  bool isCompleted() override {
    return std::all_of(messages_.begin(), messages_.end(), [](const auto& message) { return message->isCompleted(); });
  }
  bool wait(std::chrono::milliseconds) override {
    for (const auto& message : messages_) message->wait();
    return true;
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> messages_;
};

// Where the rows of each member begin, and at last how many there are.
std::vector<int64_t> begins_of(const at::Tensor& tensor, const std::vector<int64_t>& rows, int size) {
  PLAIT_CHECK(tensor.dim() > 0 && (rows.empty() ? tensor.size(0) % size == 0 : rows.size() == static_cast<size_t>(size)), "all_to_all of [",
              join(tensor.sizes()), "] between ", size, " ranks, rows ", join(rows));
  std::vector<int64_t> begins{0};
  for (size_t r = 0; r < static_cast<size_t>(size); ++r) begins.push_back(begins.back() + (rows.empty() ? tensor.size(0) / size : rows[r]));
  PLAIT_CHECK(begins.back() == tensor.size(0), "all_to_all of ", tensor.size(0), " rows as ", join(rows));
  return begins;
}

}  // namespace

MpiBackend::MpiBackend(std::shared_ptr<MpiRank> rank, std::vector<int64_t> members, int group_rank, int tag, Use use)
    : c10d::Backend(group_rank, static_cast<int>(members.size())), own_(std::move(rank)), mpi_(own_->mpi()), members_(std::move(members)),
      group_(own_->make_group(members_, tag)), use_(use) {
  own_->add(this);
}

MpiBackend::~MpiBackend() { own_->remove(this); }

char* MpiBackend::staging(int64_t bytes) {
  if (!staging_.defined() || staging_.numel() < bytes) staging_ = at::empty({bytes}, at::kByte);
  return static_cast<char*>(staging_.data_ptr());
}

bool MpiBackend::one_phase(const MpiCollective& c) const {
  return c.piece * static_cast<int64_t>(c.input.element_size()) * size_ <= kMpiOnePhaseBytes;
}

std::vector<int> MpiBackend::part_bytes(const MpiCollective& c) const {
  std::vector<int> bytes;
  for (int r = 0; r < size_; ++r) {
    const auto [begin, end] = part_of_piece(c.piece, r, size_);
    bytes.push_back(static_cast<int>((end - begin) * static_cast<int64_t>(c.input.element_size())));
  }
  return bytes;
}

void MpiBackend::begin_piece(MpiCollective& c) {
  if (c.kind == MpiKind::kBarrier) {
    c.request = mpi_.barrier(group_);
    return;
  }
  const bool scatters = c.kind == MpiKind::kReduceScatter;
  const int64_t whole = scatters ? c.output.numel() : c.input.numel(), element_size = static_cast<int64_t>(c.input.element_size());
  // Pieces of a sum are staged for all members at once.
  const int64_t most = std::max<int64_t>(64, kPieceBytes / element_size / (scatters ? size_ : 1));
  c.piece = std::min(whole - c.position, most);
  const int64_t bytes = c.piece * element_size, stride = whole * element_size;
  switch (c.kind) {
    case MpiKind::kAllReduce:
      if (one_phase(c)) c.request = mpi_.all_gather(group_, mpi_element(c.input, c.position), staging(bytes * size_), bytes, bytes);
      else {
        auto [begin, end] = part_of_piece(c.piece, rank_, size_);
        c.request =
            mpi_.all_to_all_parts(group_, mpi_element(c.input, c.position), part_bytes(c), staging((end - begin) * element_size * size_));
      }
      break;
    case MpiKind::kReduceScatter:
      c.request = mpi_.all_to_all(group_, mpi_element(c.input, c.position), stride, staging(bytes * size_), bytes);
      break;
    case MpiKind::kAllGather:
      c.request = mpi_.all_gather(group_, mpi_element(c.input, c.position), mpi_element(c.output, c.position), bytes, stride);
      break;
    case MpiKind::kBroadcast: c.request = mpi_.broadcast(group_, mpi_element(c.output, c.position), bytes, c.root); break;
    case MpiKind::kBarrier: break;
  }
}

// What all members gave for this rank's part lies in the staging memory.
void MpiBackend::reduce_piece(MpiCollective& c) {
  auto [begin, end] = part_of_piece(c.piece, rank_, size_);
  if (c.kind == MpiKind::kReduceScatter || one_phase(c)) begin = 0, end = c.piece;
  const int64_t part = (end - begin) * static_cast<int64_t>(c.input.element_size());
  std::vector<const void*> inputs;
  for (int r = 0; r < size_; ++r) inputs.push_back(staging(part * size_) + r * part);
  bool known = reduce_slices(c.input.scalar_type(), c.reduction, inputs, {mpi_element(c.output, c.position + begin)}, end - begin);
  if (!known) throw std::logic_error(cat("no reduction for type ", c10::toString(c.input.scalar_type())));
}

void MpiBackend::end_piece(MpiCollective& c) {
  c.position += c.piece;
  c.state = MpiCollective::State::kBegin;
  const int64_t whole = c.kind == MpiKind::kBarrier ? 0 : c.kind == MpiKind::kReduceScatter ? c.output.numel() : c.input.numel();
  if (c.position < whole) return;
  c.complete = true;
  c.input = c.output = at::Tensor();  // the owner frees it: a finished operation holds no memory
}

bool MpiBackend::step(MpiCollective& c) {
  using State = MpiCollective::State;
  if (c.state == State::kBegin) {
    begin_piece(c);
    c.state = State::kExchange;
    return true;
  }
  if (!mpi_.finished(c.request)) return false;
  c.request = nullptr;
  if (c.state == State::kExchange && (c.kind == MpiKind::kAllReduce || c.kind == MpiKind::kReduceScatter)) {
    reduce_piece(c);
    if (c.kind == MpiKind::kAllReduce && !one_phase(c)) {
      c.request = mpi_.all_gather_parts(group_, mpi_element(c.output, c.position), part_bytes(c));
      c.state = State::kSpread;
      return true;
    }
  }
  end_piece(c);
  return true;
}

bool MpiBackend::progress_collectives() {
  bool moved = false;
  while (!collectives_.empty() && collectives_.front()->broken.empty()) {  // a broken one stays: nothing of this group can follow it
    MpiCollective& c = *collectives_.front();
    bool stepped = false;
    mpi_guarded(c, [&] { stepped = step(c); });
    if (!c.broken.empty()) return true;
    if (!stepped) break;
    moved = true;
    if (c.complete) collectives_.pop_front();
  }
  return moved;
}

bool MpiBackend::progress() {
  bool moved = progress_collectives();
  for (auto at = messages_.begin(); at != messages_.end();) {
    MpiMessage& message = **at;
    mpi_guarded(message, [&] { message.complete = mpi_.finished(message.request); });
    if (!message.complete && message.broken.empty()) {
      ++at;
      continue;
    }
    message.tensor = at::Tensor();
    at = messages_.erase(at);
    moved = true;
  }
  return moved;
}

c10::intrusive_ptr<c10d::Work> MpiBackend::start(MpiKind kind, const at::Tensor& input, const at::Tensor& output, c10d::OpType type,
                                                 Reduction reduction, int root) {
  auto operation = std::make_shared<MpiCollective>();
  operation->kind = kind;
  operation->input = input;
  operation->output = output;
  operation->reduction = reduction;
  operation->root = root;
  {
    std::lock_guard lock(own_->mutex());
    collectives_.push_back(operation);
    progress_collectives();
  }
  return c10::make_intrusive<MpiWork<MpiCollective>>(own_, operation, rank_, type);
}

c10::intrusive_ptr<c10d::Work> MpiBackend::start_message(const at::Tensor& tensor, int peer, int tag, bool is_send) {
  check_mpi_tensor(tensor);
  PLAIT_CHECK(peer >= 0 && peer < size_ && peer != rank_, "message between group rank ", rank_, " and ", peer, " in a group of ", size_);
  auto message = std::make_shared<MpiMessage>();
  message->tensor = tensor;
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  {
    std::lock_guard lock(own_->mutex());
    mpi_guarded(*message, [&] {
      message->request =
          is_send ? mpi_.send(group_, tensor.data_ptr(), bytes, peer, tag) : mpi_.receive(group_, tensor.data_ptr(), bytes, peer, tag);
    });
    if (message->broken.empty()) messages_.push_back(message);
  }
  return c10::make_intrusive<MpiWork<MpiMessage>>(own_, message, rank_, is_send ? c10d::OpType::SEND : c10d::OpType::RECV);
}

c10::intrusive_ptr<c10d::Work> MpiBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  check_mpi_tensor(tensors.at(0));
  return start(MpiKind::kAllReduce, tensors[0], tensors[0], c10d::OpType::ALLREDUCE, mpi_reduction(options.reduceOp));
}

c10::intrusive_ptr<c10d::Work> MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) {
  check_mpi_tensor(input);
  check_mpi_tensor(output);
  PLAIT_CHECK(output.numel() == input.numel() * size_ && output.scalar_type() == input.scalar_type(), "all_gather of ", input.numel(),
              " elements from ", size_, " ranks into ", output.numel());
  return start(MpiKind::kAllGather, input, output, c10d::OpType::_ALLGATHER_BASE);
}

c10::intrusive_ptr<c10d::Work> MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                const c10d::ReduceScatterOptions& options) {
  check_mpi_tensor(input);
  check_mpi_tensor(output);
  PLAIT_CHECK(input.numel() == output.numel() * size_ && output.scalar_type() == input.scalar_type(), "reduce_scatter of ", input.numel(),
              " elements over ", size_, " ranks into ", output.numel());
  return start(MpiKind::kReduceScatter, input, output, c10d::OpType::_REDUCE_SCATTER_BASE, mpi_reduction(options.reduceOp));
}

// By messages, which may be longer than the counts of a collective of MPI allow.
c10::intrusive_ptr<c10d::Work> MpiBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& rows_got,
                                                         std::vector<int64_t>& rows_given, const c10d::AllToAllOptions&) {
  check_mpi_tensor(input);
  check_mpi_tensor(output);
  const auto got = begins_of(output, rows_got, size_), given = begins_of(input, rows_given, size_);
  auto part = [](const at::Tensor& tensor, const std::vector<int64_t>& begins, int r) {
    const auto at = static_cast<size_t>(r);
    return tensor.narrow(0, begins[at], begins[at + 1] - begins[at]);
  };
  std::vector<c10::intrusive_ptr<c10d::Work>> messages;
  for (bool is_send : {false, true})
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + (is_send ? step : size_ - step)) % size_;
      messages.push_back(start_message(is_send ? part(input, given, peer) : part(output, got, peer), peer, kAllToAllTag, is_send));
    }
  part(output, got, rank_).copy_(part(input, given, rank_));
  return c10::make_intrusive<MpiMessagesWork>(std::move(messages), rank_, c10d::OpType::ALLTOALL_BASE);
}

c10::intrusive_ptr<c10d::Work> MpiBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  check_mpi_tensor(tensors.at(0));
  PLAIT_CHECK(options.rootRank >= 0 && options.rootRank < size_, "broadcast from group rank ", options.rootRank, " of ", size_);
  return start(MpiKind::kBroadcast, tensors[0], tensors[0], c10d::OpType::BROADCAST, Reduction::kSum, static_cast<int>(options.rootRank));
}

c10::intrusive_ptr<c10d::Work> MpiBackend::barrier(const c10d::BarrierOptions&) {
  return start(MpiKind::kBarrier, at::Tensor(), at::Tensor(), c10d::OpType::BARRIER);
}

c10::intrusive_ptr<c10d::Work> MpiBackend::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  return start_message(tensors.at(0), destination, tag, true);
}

c10::intrusive_ptr<c10d::Work> MpiBackend::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  return start_message(tensors.at(0), source, tag, false);
}

}  // namespace plait::detail
