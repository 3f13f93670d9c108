#include "plait/comm/shm_loans.h"

#include <ATen/Functions.h>
#include <unistd.h>

#include "plait/base/error.h"
#include "plait/tensor/allocator.h"

namespace plait::detail {

struct ShmLoans::Own {
  struct Piece {
    uint64_t serial;
    SharedMemory memory;
  };
  std::mutex mutex;
  uint64_t serial = 0;
  std::map<const char*, Piece> pieces;  // by address
};

ShmLoans::ShmLoans() : own_(std::make_shared<Own>()) {}
ShmLoans::~ShmLoans() = default;

at::Tensor ShmLoans::lend(int64_t elements, at::ScalarType type) {
  const auto bytes = static_cast<size_t>(elements) * c10::elementSize(type);
  if (bytes == 0) return at::zeros({0}, type);
  // Large ones end on a whole huge page.
  const size_t size =
      bytes < SharedMemory::kHugePage ? bytes : (bytes + SharedMemory::kHugePage - 1) / SharedMemory::kHugePage * SharedMemory::kHugePage;
  SharedMemory memory = SharedMemory::create(size);
  memory.take_huge_pages(size);
  char* at = memory.data();
  {
    std::lock_guard<std::mutex> lock(own_->mutex);
    own_->pieces.emplace(at, Own::Piece{++own_->serial, std::move(memory)});
  }
  count_other_memory(static_cast<int64_t>(bytes));
  auto give_back = [own = own_, bytes](void* data) {
    count_other_memory(-static_cast<int64_t>(bytes));
    std::lock_guard<std::mutex> lock(own->mutex);
    auto piece = own->pieces.find(static_cast<const char*>(data));
    piece->second.memory.empty();
    own->pieces.erase(piece);
  };
  return at::from_blob(at, {elements}, give_back, at::TensorOptions().dtype(type));
}

ShmLoan ShmLoans::find(const void* begin, size_t bytes) const {
  const auto* at = static_cast<const char*>(begin);
  std::lock_guard<std::mutex> lock(own_->mutex);
  auto piece = own_->pieces.upper_bound(at);
  if (piece == own_->pieces.begin()) return {};
  --piece;
  const SharedMemory& memory = piece->second.memory;
  const auto offset = static_cast<size_t>(at - piece->first);
  if (offset + bytes > memory.size_bytes()) return {};
  return {piece->second.serial, ::getpid(), memory.descriptor(), memory.size_bytes(), offset};
}

char* ShmLoans::reach(const ShmLoan& loan) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto [found, is_new] = reached_.try_emplace({loan.process, loan.serial});
  if (is_new) {
    try {
      found->second = SharedMemory::attach(cat(loan.process, "/", loan.descriptor), loan.size_bytes);
    } catch (...) {
      reached_.erase(found);
      throw;
    }
  }
  return found->second.data() + loan.offset_bytes;
}

}  // namespace plait::detail
