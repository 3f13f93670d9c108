// Tensors that the members of a group read in place when they communicate them, without a copy through slots: where the group, or its part
// on this machine, shares memory. Elsewhere they are plain tensors. For large buffers that live long: in a large one each huge page (2 MiB)
// takes some milliseconds to make. They do not count in memory_stats().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "plait/comm/process_group.h"

namespace plait {

// Where the group's tensors must lie; zeros. Any rank may call it at any time. Throws Error(kResource).
at::Tensor shared_zeros(ProcessGroup& group, int64_t elements, at::ScalarType type);

namespace detail {

// What a process group or its backend implements to make such tensors.
class BufferMaker {
 public:
  virtual ~BufferMaker() = default;
  virtual at::Tensor make_buffer(int64_t elements, at::ScalarType type) = 0;
};

}  // namespace detail
}  // namespace plait
