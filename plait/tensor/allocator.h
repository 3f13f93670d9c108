// The caching CPU allocator of tensors: memory freed in one step serves the next, in huge pages, so that steady training touches no fresh
// page. Large blocks are cut from 2 MiB-aligned segments (MADV_HUGEPAGE), best fit, neighbours merged when freed; small ones come from
// per-thread caches by size class. Blocks are 64-byte aligned; a block's context is its data pointer, as c10 asks. Free memory is kept for
// later while live + kept stays below 5/4 of the live peak + 64 MiB; what is above goes back to the system.
// Thread rule: any thread may allocate and free, also a block of another thread, also while the process ends.
#pragma once

#include <cstdint>

namespace plait {

struct MemoryStats {
  int64_t live_bytes = 0;       // asked for and not freed, with what count_other_memory() was told
  int64_t peak_bytes = 0;       // most of it at any moment since the start or reset_peak_memory()
  int64_t cached_bytes = 0;     // free large blocks whose pages are kept
  int64_t reserved_bytes = 0;   // address space taken from the system (pages are resident from first touch)
  int64_t num_allocations = 0;  // so far
};

// Makes it the process's CPU allocator. Call once, early in main(): tensors made before keep their own deleter. Later calls do nothing.
// This is the one place that sets c10's registration point.
void install_caching_allocator();
bool caching_allocator_installed();

// Counters of the whole process (all thread ranks). All zero when not installed.
MemoryStats memory_stats();
// Tensors whose memory does not come from this allocator (shared with other processes): `bytes` more of them live, or fewer (negative).
void count_other_memory(int64_t bytes);
// peak_bytes = live_bytes from now on.
void reset_peak_memory();
// Gives all kept large blocks back to the system.
void release_cached_memory();

}  // namespace plait
