// Copies of memory past the caches, for what is so large that nothing of it would be found there again: a cache line that is written whole
// need not be read first, a third of a copy's traffic. The bytes are visible to other cores on return.
#pragma once

#include <cstdint>

namespace plait::detail {

// The ranges must not overlap.
void stream_copy(void* to, const void* from, int64_t bytes);

}  // namespace plait::detail
