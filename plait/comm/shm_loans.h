// ShmLoans: tensors of one rank that lie in shared memory, so that its peers on the machine read them in place. lend() makes one; an
// operation on it says where it lies (ShmLoan), and a peer reach()es it: mapped at first use and kept. The owner keeps a tensor until
// those who read it are done, as with every operation; its memory goes back to the system with its last owner, whoever still has it mapped.
// Thread rule: any thread may call anything, and drop a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "plait/comm/shm_memory.h"

namespace plait::detail {

constexpr int64_t kInPlaceBytes = 128 << 10;  // below, waiting until all have read costs more than the copies

// Where lent memory lies; plain data, for shared memory.
struct ShmLoan {
  uint64_t serial = 0;  // counts the owner's tensors; 0 = not lent
  int32_t process = 0, descriptor = -1;
  uint64_t size_bytes = 0;    // of the whole tensor
  uint64_t offset_bytes = 0;  // of what is meant
};

class ShmLoans {
 public:
  ShmLoans();
  ~ShmLoans();
  ShmLoans(const ShmLoans&) = delete;

  // Zeros. Throws Error(kResource).
  at::Tensor lend(int64_t elements, at::ScalarType type);
  // Where `bytes` from `begin` lie; serial 0 when not wholly in one tensor of lend().
  ShmLoan find(const void* begin, size_t bytes) const;
  // A peer's memory. Throws as SharedMemory::attach.
  char* reach(const ShmLoan& loan);

 private:
  struct Own;  // outlives this object by the last tensor
  std::shared_ptr<Own> own_;
  std::mutex mutex_;
  std::map<std::pair<int32_t, uint64_t>, SharedMemory> reached_;  // by process and serial
};

}  // namespace plait::detail
