// Tensors that the members of a group read in place when they communicate them, without a copy through slots: where the group, or its part
// on this machine, shares memory. Elsewhere they are plain tensors. For buffers that live long, or are used again (SharedPool): to make one
// takes system calls. They count in memory_stats().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "plait/comm/process_group.h"

namespace plait {

// Where the group's tensors must lie; zeros. Any rank may call it at any time. Throws Error(kResource).
at::Tensor shared_zeros(ProcessGroup& group, int64_t elements, at::ScalarType type);

// Tensors for messages over `group`, used again when nobody holds the one before. Takes as much memory as was ever held at one time, each
// tensor as the largest. One rank's own: no communication, one thread.
class SharedPool {
 public:
  // The group must outlive the pool, the tensors need not.
  explicit SharedPool(ProcessGroup& group) : group_(group) {}
  // Contiguous, values of an earlier use. Undefined when the group shares no memory or the tensor is too small to be read in place.
  // Throws Error(kResource).
  at::Tensor take(const std::vector<int64_t>& shape, at::ScalarType type);

 private:
  ProcessGroup& group_;
  int64_t largest_bytes_ = 0;
  std::vector<at::Tensor> buffers_;
};

namespace detail {

// What a process group or its backend implements to make such tensors.
class BufferMaker {
 public:
  virtual ~BufferMaker() = default;
  virtual at::Tensor make_buffer(int64_t elements, at::ScalarType type) = 0;
  // From this size on others read its messages in place; INT64_MAX: never.
  virtual int64_t in_place_bytes() const = 0;
};

}  // namespace detail
}  // namespace plait
