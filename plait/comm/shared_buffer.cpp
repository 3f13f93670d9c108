#include "plait/comm/shared_buffer.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

namespace plait {

at::Tensor shared_zeros(ProcessGroup& group, int64_t elements, at::ScalarType type) {
  auto* maker = dynamic_cast<detail::BufferMaker*>(&group);
  return maker ? maker->make_buffer(elements, type) : at::zeros({elements}, at::TensorOptions().dtype(type).device(group.device()));
}

namespace {

// Few sizes, at most a quarter too large: peers keep what they have mapped once.
int64_t rounded_up(int64_t bytes) {
  const int64_t step = std::max<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 4, 1);
  return (bytes + step - 1) / step * step;
}

}  // namespace

at::Tensor SharedPool::take(const std::vector<int64_t>& shape, at::ScalarType type) {
  const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(type));
  auto* maker = dynamic_cast<detail::BufferMaker*>(&group_);
  if (!maker || bytes < maker->in_place_bytes()) return {};
  largest_bytes_ = std::max(largest_bytes_, rounded_up(bytes));
  auto is_free = [](const at::Tensor& buffer) { return buffer.storage().use_count() == 1; };
  std::erase_if(buffers_, [&](const at::Tensor& buffer) { return is_free(buffer) && buffer.numel() < bytes; });
  auto found = std::find_if(buffers_.begin(), buffers_.end(), is_free);
  if (found == buffers_.end()) found = buffers_.insert(found, maker->make_buffer(largest_bytes_, at::kByte));
  // No view of the buffer: autograd must not see those who held it before.
  return at::empty({0}, at::TensorOptions().dtype(type)).set_(found->storage(), 0, shape);
}

}  // namespace plait
