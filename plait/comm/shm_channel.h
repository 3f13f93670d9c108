// ShmChannel: messages from one rank to one other through a ring of slots in shared memory, first in first out. One writer, one reader. A
// message is cut into pieces of at most a slot; each carries the message's size, type and tag, so that the reader can find the receive
// that it belongs to, or keep it until that one is posted. A large message in lent memory (ShmLoans) is one piece that says where it lies:
// the reader copies it from there, and only then it is sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "plait/comm/shm_loans.h"
#include "plait/comm/shm_rank.h"

namespace plait::detail {

constexpr size_t kShmMessageSlotBytes = 256 << 10;
constexpr size_t kShmMessageSlots = 8;

struct ShmSlotHeader {
  int64_t message_bytes = 0;  // of the whole message
  int64_t piece_bytes = 0;
  int32_t tag = 0;
  int32_t type = 0;  // at::ScalarType
  ShmLoan loan;      // of the whole message, or none: the bytes are in the slot
};

// In shared memory, zeros at first.
struct ShmRing {
  alignas(64) std::atomic<uint64_t> written;  // pieces
  alignas(64) std::atomic<uint64_t> taken;
  struct Slot {
    alignas(64) ShmSlotHeader header;
    alignas(64) char bytes[kShmMessageSlotBytes];
  };
  Slot slots[kShmMessageSlots];
};

// One half of a message, kept by the rank that posted it.
struct ShmMessage {
  int peer = 0;  // group rank
  int tag = 0;
  bool is_send = false;
  at::Tensor tensor;
  int64_t moved_bytes = 0;
  bool complete = false;
  std::string broken;
};

// The writing end.
class ShmSender {
 public:
  ShmSender(ShmRing* ring, const ShmLoans& loans) : ring_(ring), loans_(&loans) {}
  void post(std::shared_ptr<ShmMessage> message) { waiting_.push_back(std::move(message)); }
  bool idle() const { return waiting_.empty() && lent_.empty(); }
  bool progress();  // true when it wrote something, or something lent was read: ring the reader

 private:
  struct Lent {
    uint64_t piece;
    std::shared_ptr<ShmMessage> message;
  };
  void write(ShmMessage& message, ShmRing::Slot& slot);
  ShmRing* ring_;
  const ShmLoans* loans_;
  std::deque<std::shared_ptr<ShmMessage>> waiting_;
  std::deque<Lent> lent_;  // until the reader has taken them
};

// The reading end.
class ShmReceiver {
 public:
  // members: global ranks, of whom it reads what group rank `peer` writes.
  ShmReceiver(ShmRing* ring, ShmRank& own, const std::vector<int64_t>& members, int peer)
      : ring_(ring), own_(&own), members_(&members), from_(members[static_cast<size_t>(peer)]) {}
  void post(std::shared_ptr<ShmMessage> message);
  bool progress();  // true when it took something: ring the writer

 private:
  struct Early {  // came before its receive
    int32_t tag = 0, type = 0;
    std::vector<char> bytes;
  };
  void begin(const ShmSlotHeader& header);
  void check(ShmMessage& message, int32_t type, int64_t bytes) const;
  ShmRing* ring_;
  ShmRank* own_;
  const std::vector<int64_t>* members_;
  int64_t from_;  // global rank
  std::deque<std::shared_ptr<ShmMessage>> posted_;
  std::deque<Early> early_;
  // The message whose pieces arrive now: into a posted receive or into early_.back().
  bool open_ = false, open_early_ = false;
  int64_t got_bytes_ = 0;
  std::shared_ptr<ShmMessage> target_;
};

}  // namespace plait::detail
