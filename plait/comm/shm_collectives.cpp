#include "plait/comm/shm_collectives.h"

#include <algorithm>
#include <cstring>

#include "plait/base/error.h"
#include "plait/comm/stream_copy.h"

namespace plait::detail {
namespace {

// Measured with 2, 4 and 8 ranks on two cores: pieces that stay in the cache, yet few meetings.
constexpr int64_t kSlotBytes = 512 << 10;
constexpr uint64_t kSlots = 2;
constexpr int64_t kOneMeetingBytes = 32 << 10;  // up to here it costs less that every rank sums everything itself
constexpr int64_t kStreamBytes = 16 << 20;      // from here on results leave the caches before they are used
constexpr int64_t kPartElements = 64;           // pieces begin on whole cache lines, in every type

char* element_at(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return false;
  const char *a_begin = element_at(a, 0), *b_begin = element_at(b, 0);
  return a_begin < b_begin + b.nbytes() && b_begin < a_begin + a.nbytes();
}

std::string shm_call_text(const ShmCall& call) {
  constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"};
  std::string text = kNames[static_cast<int>(call.kind)];
  if (call.kind == ShmKind::kBarrier) return text;
  if (call.reduction != Reduction::kSum) text += call.reduction == Reduction::kMax ? " max" : " min";
  if (call.kind == ShmKind::kBroadcast) text += cat(" from ", call.root);
  return cat(text, " of ", call.elements, " x ", c10::toString(static_cast<at::ScalarType>(call.type)));
}

}  // namespace

// One rank's counters in shared memory. A counter only grows.
struct alignas(64) ShmCollectives::Seat {
  std::atomic<uint64_t> staged;   // pieces whose slot is filled
  std::atomic<uint64_t> reduced;  // pieces of two meetings whose part is summed
  std::atomic<uint64_t> done;     // pieces of which this rank reads nothing any more
  std::atomic<uint32_t> waits_for_done;
  struct Posted {
    ShmCall call;
    ShmLoan loan;
  };
  alignas(64) Posted posted[kSlots];  // of the operation whose first piece has that slot
};

size_t ShmCollectives::area_bytes(int size) {
  const auto n = static_cast<size_t>(size);
  return n * sizeof(Seat) + (n + 1) * kSlots * static_cast<size_t>(kSlotBytes);
}

ShmCollectives::ShmCollectives(ShmRank& own, const std::vector<int64_t>& members, int rank, char* area)
    : own_(own), members_(members), size_(static_cast<int>(members.size())), rank_(rank), seats_(reinterpret_cast<Seat*>(area)),
      slots_(area + members.size() * sizeof(Seat)), results_(slots_ + members.size() * kSlots * static_cast<size_t>(kSlotBytes)) {}

char* ShmCollectives::slot(int rank, uint64_t piece) const {
  return slots_ + (static_cast<uint64_t>(rank) * kSlots + piece % kSlots) * static_cast<uint64_t>(kSlotBytes);
}

char* ShmCollectives::result(uint64_t piece) const { return results_ + piece % kSlots * static_cast<uint64_t>(kSlotBytes); }

std::shared_ptr<ShmCollective> ShmCollectives::post(ShmCall call, const at::Tensor& input, const at::Tensor& output) {
  auto posted = std::make_shared<ShmCollective>();
  ShmCollective& c = *posted;
  int64_t rows = 1;
  if (input.defined()) {
    call.type = static_cast<int32_t>(input.scalar_type());
    call.elements = input.numel();
    c.element_size = static_cast<int64_t>(input.element_size());
    c.whole = call.kind == ShmKind::kReduceScatter ? output.numel() : input.numel();
    if (call.kind == ShmKind::kReduceScatter) rows = size_;
  }
  c.call = call;
  c.input = input;
  c.output = output;
  c.piece = kSlotBytes / c.element_size / rows;
  PLAIT_CHECK(c.piece > 0, "a group of ", size_, " ranks is too large for shared-memory slots");
  if (c.piece > kPartElements) c.piece = c.piece / kPartElements * kPartElements;
  c.num_pieces = static_cast<uint64_t>(std::max<int64_t>(1, (c.whole + c.piece - 1) / c.piece));
  c.two_meetings = call.kind == ShmKind::kAllReduce && c.whole * c.element_size > kOneMeetingBytes;
  const bool is_read = call.kind != ShmKind::kBroadcast || call.root == rank_;
  if (input.defined() && is_read && c.whole * c.element_size >= kInPlaceBytes)
    c.own = own_.loans().find(input.const_data_ptr(), input.nbytes());
  for (const auto& earlier : operations_)
    for (const auto& theirs : {earlier->input, earlier->output})
      c.after_others = c.after_others || share_memory(theirs, input) || share_memory(theirs, output);
  c.sequence = sequence_++;
  c.first_piece = pieces_;
  c.first_reduction = reductions_;
  pieces_ += c.num_pieces;
  if (c.two_meetings) reductions_ += c.num_pieces;
  operations_.push_back(posted);
  return posted;
}

uint64_t ShmCollectives::least(std::atomic<uint64_t> Seat::*counter) const {
  uint64_t least = UINT64_MAX;
  for (int r = 0; r < size_; ++r) least = std::min(least, (seats_[r].*counter).load(std::memory_order_seq_cst));
  return least;
}

// Adds one. The last to come wakes the others; two at once both do.
void ShmCollectives::publish(std::atomic<uint64_t> Seat::*counter) {
  const uint64_t before = (seats_[rank_].*counter).load(std::memory_order_relaxed);
  (seats_[rank_].*counter).store(before + 1, std::memory_order_seq_cst);
  if (least(counter) <= before) return;
  const bool done = counter == &Seat::done;  // rarely waited for
  for (int r = 0; r < size_; ++r)
    if (r != rank_ && (!done || seats_[r].waits_for_done.load(std::memory_order_seq_cst))) ring(r);
}

// Every rank is done with the first `pieces` of the group; or the others will ring when that may have changed.
bool ShmCollectives::all_done(uint64_t pieces) {
  auto done = [&] { return least(&Seat::done) >= pieces; };
  std::atomic<uint32_t>& waits = seats_[rank_].waits_for_done;
  if (!done()) {
    waits.store(1, std::memory_order_seq_cst);
    if (!done()) return false;
  }
  if (waits.load(std::memory_order_relaxed)) waits.store(0, std::memory_order_relaxed);
  return true;
}

// What `rank` put into its slot at that element of a piece, or has in its lent input at that element.
const char* ShmCollectives::input_of(const ShmCollective& c, int rank, uint64_t index, int64_t in_slot, int64_t in_tensor) const {
  if (rank == rank_) return element_at(c.input, in_tensor);
  char* lent = c.lent[static_cast<size_t>(rank)];
  return lent ? lent + in_tensor * c.element_size : slot(rank, c.first_piece + index) + in_slot * c.element_size;
}

void ShmCollectives::stage(ShmCollective& c, uint64_t index) {
  const uint64_t piece = c.first_piece + index;
  const int64_t begin = static_cast<int64_t>(index) * c.piece, elements = std::min(c.whole - begin, c.piece);
  char* to = slot(rank_, piece);
  auto put = [&](int64_t at, int64_t from, int64_t count) {
    if (count > 0 && c.own.serial == 0) copy_bytes(to + at * c.element_size, element_at(c.input, from), count * c.element_size);
  };
  switch (c.call.kind) {
    case ShmKind::kAllReduce:
      if (c.two_meetings) {  // nobody else needs the own part
        const ReducedPart own = part_of_piece(elements, rank_, size_);
        put(0, begin, own.begin);
        put(own.end, begin + own.end, elements - own.end);
      } else {
        put(0, begin, elements);
      }
      break;
    case ShmKind::kReduceScatter:
      for (int r = 0; r < size_; ++r)
        if (r != rank_) put(r * elements, r * c.whole + begin, elements);
      break;
    case ShmKind::kAllGather: put(0, begin, elements); break;
    case ShmKind::kBroadcast:
      if (c.call.root == rank_) put(0, begin, elements);
      break;
    case ShmKind::kBarrier: break;
  }
  if (index == 0) seats_[rank_].posted[piece % kSlots] = {c.call, c.own};
}

// When all have come to the operation: they call the same, and what they lend is at hand. False: broken.
bool ShmCollectives::begin_reading(ShmCollective& c) {
  if (!calls_agree(c)) return false;
  c.lent.assign(static_cast<size_t>(size_), nullptr);
  for (int r = 0; r < size_; ++r) {
    const auto at = static_cast<size_t>(r);
    const ShmLoan& loan = seats_[r].posted[c.first_piece % kSlots].loan;
    if (r != rank_ && loan.serial > 0) c.lent[at] = own_.reach(members_[at], loan);
  }
  return true;
}

bool ShmCollectives::calls_agree(ShmCollective& c) const {
  for (int r = 0; r < size_; ++r) {
    const Seat::Posted& other = seats_[r].posted[c.first_piece % kSlots];
    if (other.call == c.call) continue;
    c.broken = cat("ranks ", join(members_), " disagree on operation ", c.sequence, ": rank ", members_[static_cast<size_t>(r)], " calls ",
                   shm_call_text(other.call), ", rank ", members_[static_cast<size_t>(rank_)], " calls ", shm_call_text(c.call));
    return false;
  }
  return true;
}

void ShmCollectives::reduce(const ShmCollective& c, int64_t elements) {
  const bool known = reduce_slices(c.input.scalar_type(), c.call.reduction, inputs_, outputs_, elements);
  PLAIT_CHECK(known, "no reduction for type ", c10::toString(c.input.scalar_type()));
}

void ShmCollectives::reduce_part(ShmCollective& c, uint64_t index) {
  const int64_t begin = static_cast<int64_t>(index) * c.piece;
  const ReducedPart own = part_of_piece(std::min(c.whole - begin, c.piece), rank_, size_);
  if (own.begin == own.end) return;
  inputs_.clear();
  for (int r = 0; r < size_; ++r) inputs_.push_back(input_of(c, r, index, own.begin, begin + own.begin));
  outputs_ = {element_at(c.output, begin + own.begin)};
  if (c.own.serial == 0) outputs_.push_back(result(c.first_piece + index) + own.begin * c.element_size);
  reduce(c, own.end - own.begin);
}

// The parts that the others summed.
void ShmCollectives::gather_parts(ShmCollective& c, uint64_t index) {
  const int64_t begin = static_cast<int64_t>(index) * c.piece, elements = std::min(c.whole - begin, c.piece);
  for (int r = 0; r < size_; ++r) {
    const ReducedPart part = part_of_piece(elements, r, size_);
    if (r == rank_ || part.begin == part.end) continue;
    const char* lent = c.lent[static_cast<size_t>(r)];
    const char* from = lent ? lent + (begin + part.begin) * c.element_size : result(c.first_piece + index) + part.begin * c.element_size;
    char* to = element_at(c.output, begin + part.begin);
    const int64_t bytes = (part.end - part.begin) * c.element_size;
    if (c.whole * c.element_size >= kStreamBytes) stream_copy(to, from, bytes);
    else copy_bytes(to, from, bytes);
  }
}

void ShmCollectives::sum_slots(ShmCollective& c, uint64_t index) {
  const int64_t begin = static_cast<int64_t>(index) * c.piece, elements = std::min(c.whole - begin, c.piece);
  if (elements <= 0) return;
  const bool scatter = c.call.kind == ShmKind::kReduceScatter;
  const int64_t in_slot = scatter ? rank_ * elements : 0, in_input = begin + (scatter ? rank_ * c.whole : 0);
  inputs_.clear();
  for (int r = 0; r < size_; ++r) inputs_.push_back(input_of(c, r, index, in_slot, in_input));
  outputs_ = {element_at(c.output, begin)};
  reduce(c, elements);
}

// Every input of this piece is there, or all parts are summed: the own output of it.
void ShmCollectives::finish(ShmCollective& c, uint64_t index) {
  const int64_t begin = static_cast<int64_t>(index) * c.piece, elements = std::min(c.whole - begin, c.piece);
  switch (c.call.kind) {
    case ShmKind::kAllReduce:
      if (c.two_meetings) gather_parts(c, index);
      else sum_slots(c, index);
      break;
    case ShmKind::kReduceScatter: sum_slots(c, index); break;
    case ShmKind::kAllGather:
      if (elements <= 0) break;
      for (int r = 0; r < size_; ++r)
        copy_bytes(element_at(c.output, r * c.whole + begin), input_of(c, r, index, 0, begin), elements * c.element_size);
      break;
    case ShmKind::kBroadcast:
      if (c.call.root != rank_ && elements > 0)
        copy_bytes(element_at(c.output, begin), input_of(c, c.call.root, index, 0, begin), elements * c.element_size);
      break;
    case ShmKind::kBarrier: break;
  }
}

// The oldest operation when nothing of it is left to do, here or, when its input is lent, elsewhere.
bool ShmCollectives::retire_front() {
  ShmCollective& c = *operations_.front();
  if (c.finished < c.num_pieces || (c.own.serial > 0 && !all_done(c.first_piece + c.num_pieces))) return false;
  c.complete = true;
  c.input = c.output = at::Tensor();  // the owner frees it: a finished operation holds no memory
  operations_.pop_front();
  return true;
}

bool ShmCollectives::finish_next() {
  for (const auto& operation : operations_) {
    ShmCollective& c = *operation;
    if (c.finished == c.num_pieces) continue;
    if (c.two_meetings) {
      if (c.finished == c.reduced || least(&Seat::reduced) <= c.first_reduction + c.finished) return false;
    } else {
      if (c.finished == c.staged || least(&Seat::staged) <= c.first_piece + c.finished) return false;
      if (c.finished == 0 && !begin_reading(c)) return true;
    }
    finish(c, c.finished++);
    publish(&Seat::done);
    return true;
  }
  return false;
}

bool ShmCollectives::reduce_next() {
  for (const auto& operation : operations_) {
    ShmCollective& c = *operation;
    if (!c.two_meetings || c.reduced == c.num_pieces) continue;
    if (c.reduced == c.staged || least(&Seat::staged) <= c.first_piece + c.reduced) return false;
    if (c.reduced == 0 && !begin_reading(c)) return true;
    reduce_part(c, c.reduced++);
    publish(&Seat::reduced);
    return true;
  }
  return false;
}

bool ShmCollectives::stage_next() {
  for (const auto& operation : operations_) {
    ShmCollective& c = *operation;
    if (c.staged == c.num_pieces) continue;
    if (c.after_others && operation != operations_.front()) return false;
    const uint64_t piece = c.first_piece + c.staged;
    if (piece >= kSlots && !all_done(piece - kSlots + 1)) return false;
    stage(c, c.staged++);
    publish(&Seat::staged);
    return true;
  }
  return false;
}

// What others may wait for longest comes first. A broken operation stops all that follow it.
bool ShmCollectives::step() {
  for (const auto& operation : operations_)
    if (!operation->broken.empty()) return false;
  return !operations_.empty() && (retire_front() || finish_next() || reduce_next() || stage_next());
}

bool ShmCollectives::progress() {
  bool moved = false;
  while (step()) moved = true;
  return moved;
}

// A rank that stands still has no counter above those of the ranks that wait for it.
std::string ShmCollectives::behind() const {
  if (operations_.empty()) return "";
  auto steps = [&](int r) { return seats_[r].staged.load() + seats_[r].reduced.load() + seats_[r].done.load(); };
  uint64_t fewest = steps(rank_);
  std::vector<int64_t> last;
  for (int r = 0; r < size_; ++r) {
    const uint64_t of_r = steps(r);
    if (r == rank_ || of_r > fewest) continue;
    if (of_r < fewest) last.clear();
    fewest = of_r;
    last.push_back(members_[static_cast<size_t>(r)]);
  }
  return last.empty() ? "" : cat("; of the ranks ", join(members_), " the last to move: ", join(last));
}

}  // namespace plait::detail
