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

std::string message_mismatch(const ShmMessage& message, int32_t type, int64_t bytes) {
  return cat("message mismatch with tag ", message.tag, ": the sender sends ", bytes, " bytes of ",
             c10::toString(static_cast<at::ScalarType>(type)), ", the receiver expects ", tensor_bytes(message.tensor), " of ",
             c10::toString(message.tensor.scalar_type()));
}

bool message_fits(const ShmMessage& message, int32_t type, int64_t bytes) {
  return tensor_bytes(message.tensor) == bytes && static_cast<int32_t>(message.tensor.scalar_type()) == type;
}

}  // namespace

bool ShmSender::progress() {
  bool wrote = false;
  while (!waiting_.empty()) {
    ShmMessage& message = *waiting_.front();
    const uint64_t written = ring_->written.load(std::memory_order_relaxed);
    if (written - ring_->taken.load(std::memory_order_acquire) >= kShmMessageSlots) break;
    ShmRing::Slot& slot = ring_->slots[written % kShmMessageSlots];
    const int64_t all = tensor_bytes(message.tensor);
    const int64_t piece = std::min<int64_t>(all - message.moved_bytes, kShmMessageSlotBytes);
    slot.header = {all, piece, message.tag, static_cast<int32_t>(message.tensor.scalar_type())};
    if (piece > 0)
      std::memcpy(slot.bytes, static_cast<const char*>(message.tensor.const_data_ptr()) + message.moved_bytes, static_cast<size_t>(piece));
    ring_->written.store(written + 1, std::memory_order_release);
    wrote = true;
    message.moved_bytes += piece;
    if (message.moved_bytes < all) continue;
    finish_message(message);
    waiting_.pop_front();
  }
  return wrote;
}

void ShmReceiver::deliver(ShmMessage& message, int32_t type, int64_t bytes) {
  if (!message_fits(message, type, bytes)) message.broken = message_mismatch(message, type, bytes);
}

void ShmReceiver::post(std::shared_ptr<ShmMessage> message) {
  // An early message of this tag that is whole, or is still arriving: that one is the first of its tag.
  for (auto it = early_.begin(); it != early_.end(); ++it) {
    if (it->tag != message->tag) continue;
    const auto bytes = static_cast<int64_t>(it->bytes.size());
    const bool arriving = open_ && open_early_ && &*it == &early_.back();
    deliver(*message, it->type, bytes);
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
  deliver(*target_, header.type, header.message_bytes);
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
    if (to && header.piece_bytes > 0) std::memcpy(to + got_bytes_, slot.bytes, static_cast<size_t>(header.piece_bytes));
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
