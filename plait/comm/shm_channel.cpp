#include "plait/comm/shm_channel.h"

#include <algorithm>
#include <cstring>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

int64_t tensor_bytes(const at::Tensor& tensor) { return tensor.numel() * static_cast<int64_t>(tensor.element_size()); }

void finish_message(ShmMessage& message) {
  message.complete = true;
  message.tensor = at::Tensor();  // the owner frees it: a finished message holds no memory
}

}  // namespace

// The next piece of the message.
void ShmSender::write(ShmMessage& message, ShmRing::Slot& slot) {
  const int64_t all = tensor_bytes(message.tensor);
  const auto* from = static_cast<const char*>(message.tensor.const_data_ptr());
  ShmLoan loan;
  if (all >= kInPlaceBytes) loan = loans_->find(from, static_cast<size_t>(all));
  const int64_t piece = loan.serial > 0 ? all : std::min<int64_t>(all - message.moved_bytes, kShmMessageSlotBytes);
  slot.header = {all, piece, message.tag, static_cast<int32_t>(message.tensor.scalar_type()), loan};
  if (piece > 0 && loan.serial == 0) std::memcpy(slot.bytes, from + message.moved_bytes, static_cast<size_t>(piece));
  message.moved_bytes += piece;
}

bool ShmSender::progress() {
  bool moved = false;
  const uint64_t taken = ring_->taken.load(std::memory_order_acquire);
  for (; !lent_.empty() && lent_.front().piece < taken; lent_.pop_front(), moved = true) finish_message(*lent_.front().message);
  for (; !waiting_.empty(); moved = true) {
    const uint64_t written = ring_->written.load(std::memory_order_relaxed);
    if (written - ring_->taken.load(std::memory_order_acquire) >= kShmMessageSlots) break;
    ShmMessage& message = *waiting_.front();
    ShmRing::Slot& slot = ring_->slots[written % kShmMessageSlots];
    write(message, slot);
    const bool lent = slot.header.loan.serial > 0, whole = message.moved_bytes == slot.header.message_bytes;
    ring_->written.store(written + 1, std::memory_order_release);
    if (!whole) continue;
    if (lent) lent_.push_back({written, waiting_.front()});
    else finish_message(message);
    waiting_.pop_front();
  }
  return moved;
}

// That what arrives is what the receive expects; else it is broken.
void ShmReceiver::check(ShmMessage& message, int32_t type, int64_t bytes) const {
  const at::Tensor& tensor = message.tensor;
  if (tensor_bytes(tensor) == bytes && static_cast<int32_t>(tensor.scalar_type()) == type) return;
  message.broken = cat("message mismatch in the group of ranks ", join(*members_), ", tag ", message.tag, ": rank ", from_, " sends ",
                       bytes, " bytes of ", c10::toString(static_cast<at::ScalarType>(type)), ", rank ", own_->rank(), " expects ",
                       tensor_bytes(tensor), " of ", c10::toString(tensor.scalar_type()));
}

void ShmReceiver::post(std::shared_ptr<ShmMessage> message) {
  // An early message of this tag that is whole, or is still arriving: that one is the first of its tag.
  for (auto it = early_.begin(); it != early_.end(); ++it) {
    if (it->tag != message->tag) continue;
    const auto bytes = static_cast<int64_t>(it->bytes.size());
    const bool arriving = open_ && open_early_ && &*it == &early_.back();
    check(*message, it->type, bytes);
    if (message->broken.empty() && bytes > 0)
      std::memcpy(message->tensor.data_ptr(), it->bytes.data(), static_cast<size_t>(arriving ? got_bytes_ : bytes));
    if (arriving) {  // its other pieces go into the tensor
      open_early_ = false;
      target_ = message;
    } else if (message->broken.empty()) {
      finish_message(*message);
    }
    early_.erase(it);
    return;
  }
  posted_.push_back(std::move(message));
}

void ShmReceiver::begin(const ShmSlotHeader& header) {
  open_ = true;
  got_bytes_ = 0;
  auto it = std::find_if(posted_.begin(), posted_.end(), [&](const auto& m) { return m->tag == header.tag; });
  open_early_ = it == posted_.end();
  if (open_early_) {
    early_.push_back({header.tag, header.type, std::vector<char>(static_cast<size_t>(header.message_bytes))});
    return;
  }
  target_ = *it;
  posted_.erase(it);
  check(*target_, header.type, header.message_bytes);
}

bool ShmReceiver::progress() {
  bool took = false;
  while (true) {
    const uint64_t taken = ring_->taken.load(std::memory_order_relaxed);
    if (taken == ring_->written.load(std::memory_order_acquire)) break;
    const ShmRing::Slot& slot = ring_->slots[taken % kShmMessageSlots];
    const ShmSlotHeader header = slot.header;
    if (!open_) begin(header);
    char* to = open_early_               ? early_.back().bytes.data()
               : target_->broken.empty() ? static_cast<char*>(target_->tensor.data_ptr())
                                         : nullptr;
    if (to && header.piece_bytes > 0) {
      const char* from = header.loan.serial > 0 ? own_->reach(from_, header.loan) : slot.bytes;
      std::memcpy(to + got_bytes_, from, static_cast<size_t>(header.piece_bytes));
    }
    ring_->taken.store(taken + 1, std::memory_order_release);
    took = true;
    got_bytes_ += header.piece_bytes;
    if (got_bytes_ < header.message_bytes) continue;
    open_ = false;
    if (!open_early_) {
      if (target_->broken.empty()) finish_message(*target_);
      target_.reset();
    }
  }
  return took;
}

}  // namespace plait::detail
