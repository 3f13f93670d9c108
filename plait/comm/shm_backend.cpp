#include "plait/comm/shm_backend.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cstring>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

constexpr size_t kSlotBytes = 512 << 10;
constexpr int64_t kOnePhaseBytes = 32 << 10;  // up to here every rank sums everything itself: one meeting instead of two

struct alignas(64) ShmGroupSeat {
  std::atomic<uint64_t> arrivals;
  ShmCall calls[2];  // of the piece in the slot of that parity
};

char* element_at(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::string shm_call_text(const ShmCall& call) {
  constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"};
  std::string text = kNames[static_cast<int>(call.kind)];
  if (call.kind == ShmKind::kBarrier) return text;
  if (call.reduction != Reduction::kSum) text += call.reduction == Reduction::kMax ? " max" : " min";
  if (call.kind == ShmKind::kBroadcast) text += cat(" from ", call.root);
  return cat(text, " of ", call.elements, " x ", c10::toString(static_cast<at::ScalarType>(call.type)));
}

Reduction shm_reduction(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return Reduction::kSum;
    case c10d::ReduceOp::MAX: return Reduction::kMax;
    case c10d::ReduceOp::MIN: return Reduction::kMin;
    default: throw_error(ExitCode::kBug, "the shared-memory backend reduces by sum, max and min only");
  }
}

void check_shm_tensor(const at::Tensor& tensor) {
  PLAIT_CHECK(tensor.defined() && tensor.is_cpu() && tensor.is_contiguous(), "shared-memory collectives take contiguous CPU tensors");
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

// seats | two slots a rank | two result slots | a ring for each ordered pair
struct ShmBackend::Area {
  Area(char* base, int size) : seats(reinterpret_cast<ShmGroupSeat*>(base)), size_(size) {
    slots = base + static_cast<size_t>(size) * sizeof(ShmGroupSeat);
    results = slots + static_cast<size_t>(size) * 2 * kSlotBytes;
    rings = reinterpret_cast<ShmRing*>(results + 2 * kSlotBytes);
  }
  static size_t size_bytes(int size) {
    auto n = static_cast<size_t>(size);
    return n * sizeof(ShmGroupSeat) + (n + 1) * 2 * kSlotBytes + n * n * sizeof(ShmRing);
  }
  ShmRing* ring(int from, int to) const { return rings + from * size_ + to; }

  ShmGroupSeat* seats;
  char *slots, *results;
  ShmRing* rings;

 private:
  int size_;
};

ShmBackend::ShmBackend(std::shared_ptr<ShmRank> rank, c10d::Store& store, std::vector<int64_t> members, int group_rank)
    : c10d::Backend(group_rank, static_cast<int>(members.size())), own_(std::move(rank)), members_(std::move(members)) {
  const size_t bytes = Area::size_bytes(size_);
  if (group_rank == 0) {
    memory_ = SharedMemory::create(bytes);
    std::string address = memory_.address();
    store.set("shm", std::vector<uint8_t>(address.begin(), address.end()));
  } else {
    auto address = store.get("shm");
    memory_ = SharedMemory::attach(std::string(address.begin(), address.end()), bytes);
  }
  area_ = std::make_unique<Area>(memory_.data(), size_);
  for (int peer = 0; peer < size_; ++peer) {
    senders_.emplace_back(area_->ring(group_rank, peer));
    receivers_.emplace_back(area_->ring(peer, group_rank));
  }
  own_->add(this);
  barrier(c10d::BarrierOptions())->wait();  // all have attached
  memory_.release_address();
}

ShmBackend::~ShmBackend() { own_->remove(this); }

char* ShmBackend::slot(int rank) const { return area_->slots + (static_cast<size_t>(rank) * 2 + pieces_ % 2) * kSlotBytes; }

void ShmBackend::arrive() {
  ++arrivals_;
  area_->seats[rank_].arrivals.store(arrivals_, std::memory_order_seq_cst);
  if (!all_arrived()) return;  // the last to come wakes the others; two at once both do
  for (int r = 0; r < size_; ++r)
    if (r != rank_) own_->ring(members_[static_cast<size_t>(r)]);
}

bool ShmBackend::all_arrived() const {
  for (int r = 0; r < size_; ++r)
    if (area_->seats[r].arrivals.load(std::memory_order_seq_cst) < arrivals_) return false;
  return true;
}

bool ShmBackend::two_phases(const ShmCollective& c) const {
  return c.call.kind == ShmKind::kAllReduce && size_ > 2 && c.piece * static_cast<int64_t>(c.input.element_size()) > kOnePhaseBytes;
}

// The elements of a piece that this rank sums in a two-phase all-reduce: whole cache lines, the last rank the rest.
std::pair<int64_t, int64_t> ShmBackend::own_part(int64_t piece) const {
  int64_t share = (piece / size_ + 63) / 64 * 64;
  int64_t begin = std::min(piece, share * rank_);
  return {begin, rank_ == size_ - 1 ? piece : std::min(piece, begin + share)};
}

void ShmBackend::stage(ShmCollective& c) {
  const bool has_tensor = c.call.kind != ShmKind::kBarrier;
  const auto element_size = has_tensor ? static_cast<int64_t>(c.input.element_size()) : 1;
  const int64_t whole = !has_tensor ? 0 : c.call.kind == ShmKind::kReduceScatter ? c.output.numel() : c.input.numel();
  const int64_t rows = c.call.kind == ShmKind::kReduceScatter ? size_ : 1;
  const int64_t room = static_cast<int64_t>(kSlotBytes) / element_size / rows;
  PLAIT_CHECK(room > 0, "a group of ", size_, " ranks is too large for shared-memory slots");
  c.piece = std::min(whole - c.position, room);
  char* to = slot(rank_);
  if (c.call.kind == ShmKind::kReduceScatter) {
    for (int64_t r = 0; r < rows; ++r)
      copy_bytes(to + r * c.piece * element_size, element_at(c.input, r * whole + c.position), c.piece * element_size);
  } else if (c.piece > 0 && (c.call.kind != ShmKind::kBroadcast || c.call.root == rank_)) {
    copy_bytes(to, element_at(c.input, c.position), c.piece * element_size);
  }
  area_->seats[rank_].calls[pieces_ % 2] = c.call;
  arrive();
}

bool ShmBackend::check_calls(ShmCollective& c) {
  for (int r = 0; r < size_; ++r) {
    const ShmCall& other = area_->seats[r].calls[pieces_ % 2];
    if (other == c.call) continue;
    c.broken = cat("ranks ", join(members_), " disagree on operation ", c.sequence, ": rank ", members_[static_cast<size_t>(r)], " calls ",
                   shm_call_text(other), ", rank ", members_[static_cast<size_t>(rank_)], " calls ", shm_call_text(c.call));
    return false;
  }
  return true;
}

void ShmBackend::reduce_own_part(ShmCollective& c) {
  auto [begin, end] = own_part(c.piece);
  const auto element_size = static_cast<int64_t>(c.input.element_size());
  std::vector<const void*> inputs;
  for (int r = 0; r < size_; ++r) inputs.push_back(slot(r) + begin * element_size);
  char* to = area_->results + (pieces_ % 2) * kSlotBytes + begin * element_size;
  bool known = reduce_slices(c.input.scalar_type(), c.call.reduction, inputs, {to}, end - begin);
  PLAIT_CHECK(known, "no reduction for type ", c10::toString(c.input.scalar_type()));
}

// All pieces of this round lie in the slots: the own output of them.
void ShmBackend::combine(ShmCollective& c) {
  if (c.piece == 0) return;
  const auto element_size = static_cast<int64_t>(c.input.element_size());
  const int64_t bytes = c.piece * element_size;
  switch (c.call.kind) {
    case ShmKind::kAllReduce:
    case ShmKind::kReduceScatter: {
      const int64_t skip = c.call.kind == ShmKind::kReduceScatter ? rank_ * bytes : 0;
      std::vector<const void*> inputs;
      for (int r = 0; r < size_; ++r) inputs.push_back(slot(r) + skip);
      bool known = reduce_slices(c.input.scalar_type(), c.call.reduction, inputs, {element_at(c.output, c.position)}, c.piece);
      PLAIT_CHECK(known, "no reduction for type ", c10::toString(c.input.scalar_type()));
      break;
    }
    case ShmKind::kAllGather:
      for (int r = 0; r < size_; ++r) copy_bytes(element_at(c.output, r * c.input.numel() + c.position), slot(r), bytes);
      break;
    case ShmKind::kBroadcast:
      if (c.call.root != rank_) copy_bytes(element_at(c.output, c.position), slot(c.call.root), bytes);
      break;
    case ShmKind::kBarrier: break;
  }
}

void ShmBackend::advance(ShmCollective& c) {
  ++pieces_;
  c.position += c.piece;
  c.state = ShmCollective::State::kStage;
  const bool has_tensor = c.call.kind != ShmKind::kBarrier;
  const int64_t whole = !has_tensor ? 0 : c.call.kind == ShmKind::kReduceScatter ? c.output.numel() : c.input.numel();
  if (c.position < whole) return;
  c.complete = true;
  c.input = c.output = at::Tensor();  // the owner frees it: a finished operation holds no memory
}

bool ShmBackend::step(ShmCollective& c) {
  using State = ShmCollective::State;
  if (c.state == State::kStage) {
    stage(c);
    c.state = State::kStaged;
    return true;
  }
  if (!all_arrived()) return false;
  if (c.state == State::kStaged) {
    if (!check_calls(c)) return true;
    if (two_phases(c)) {
      reduce_own_part(c);
      arrive();
      c.state = State::kReduced;
      return true;
    }
    combine(c);
  } else {
    copy_bytes(element_at(c.output, c.position), area_->results + (pieces_ % 2) * kSlotBytes,
               c.piece * static_cast<int64_t>(c.input.element_size()));
  }
  advance(c);
  return true;
}

bool ShmBackend::progress_collectives() {
  bool moved = false;
  while (!collectives_.empty()) {
    ShmCollective& c = *collectives_.front();
    if (c.broken.empty() && !step(c)) break;
    moved = true;
    if (!c.broken.empty()) break;  // stays at the head: nothing of this group can follow it
    if (c.complete) collectives_.pop_front();
  }
  return moved && (collectives_.empty() || collectives_.front()->broken.empty());
}

bool ShmBackend::progress() {
  bool moved = progress_collectives();
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
  auto operation = std::make_shared<ShmCollective>();
  if (input.defined()) {
    call.type = static_cast<int32_t>(input.scalar_type());
    call.elements = input.numel();
  }
  operation->call = call;
  operation->input = input;
  operation->output = output;
  {
    std::lock_guard<std::mutex> lock(own_->mutex());
    operation->sequence = sequence_++;
    collectives_.push_back(operation);
    progress_collectives();
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
  check_shm_tensor(tensors.at(0));
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
  check_shm_tensor(input);
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
