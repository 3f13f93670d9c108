#include "plait/tensor/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "plait/base/error.h"
#include "plait/tensor/arena.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(address, size) static_cast<void>(0)
#endif

namespace plait {
namespace detail {
namespace {

// In front of every block. 64 bytes, so that data keeps the cache-line alignment of the block.
struct alignas(64) Header {
  uint64_t asked;       // bytes asked for
  uint64_t block_size;  // of the whole block, header included
  int64_t size_class;   // of a small block; -1 = large
  Header* next;         // in a free list
};
static_assert(sizeof(Header) == 64);

// Small blocks: whole sizes 128, 192, 256, then 4 a doubling up to 64 KiB.
constexpr size_t kLargestSmall = 65536;
constexpr size_t kFirstClass = 128;

struct SizeClasses {
  std::vector<size_t> sizes;
  std::array<uint8_t, kLargestSmall / 64 + 1> of_units{};  // [size in 64-byte units, rounded up] -> class
  SizeClasses() {
    for (size_t size = kFirstClass, step = 64; size <= kLargestSmall; size += step) {
      sizes.push_back(size);
      if (size >= step * 8) step *= 2;
    }
    size_t c = 0;
    for (size_t units = 0; units < of_units.size(); ++units) {
      if (units * 64 > sizes[c]) ++c;
      of_units[units] = static_cast<uint8_t>(c);
    }
  }
};

constexpr size_t kMaxClasses = 64;
constexpr size_t kRunBytes = size_t{256} << 10;     // small blocks are cut from runs of this size
constexpr size_t kThreadBytes = size_t{512} << 10;  // of one class kept by one thread at most

struct FreeList {
  Header* head = nullptr;
  size_t count = 0;
  void push(Header* block) {
    block->next = head;
    head = block;
    ++count;
  }
  Header* pop() {
    Header* block = head;
    head = block->next;
    --count;
    return block;
  }
};

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &deallocate; }
  void copy_data(void* destination, const void* source, size_t count) const override { default_copy_data(destination, source, count); }

  static void deallocate(void* data);
  MemoryStats stats();
  void count_other(int64_t bytes) {
    const int64_t other = other_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    raise(peak_, live_.load(std::memory_order_relaxed) + other);
  }
  void reset_peak() { peak_.store(live_.load() + other_.load()); }
  void trim(size_t keep) { arena_.trim(keep); }

 private:
  // Free lists of one thread; handed to the shared ones when the thread ends. Memory freed after that goes to the shared lists directly.
  struct ThreadCache {
    std::array<FreeList, kMaxClasses> lists;
    ~ThreadCache();
  };
  static ThreadCache* thread_cache();

  Header* allocate_small(size_t size_class);
  void free_small(Header* header);
  void refill(FreeList& list, size_t size_class);
  static void raise(std::atomic<int64_t>& highest, int64_t to);
  void count_allocation(int64_t bytes);
  size_t keep_limit() const;

  SizeClasses classes_;
  Arena arena_;
  std::mutex shared_mutex_;
  std::array<FreeList, kMaxClasses> shared_;
  std::atomic<int64_t> live_{0}, peak_{0}, count_{0};
  std::atomic<int64_t> other_{0};   // live, made elsewhere
  std::atomic<int64_t> needed_{0};  // the peak of live_, which reset_peak() does not lower: what is worth keeping
};

// Never destroyed: tensors of static storage are freed after main() too.
std::atomic<CachingAllocator*>& installed() {
  static std::atomic<CachingAllocator*> allocator{nullptr};
  return allocator;
}

// Trivially destructible, so it can still be read while the thread's other thread_local objects are gone.
thread_local bool thread_cache_gone = false;

CachingAllocator::ThreadCache::~ThreadCache() {
  thread_cache_gone = true;
  CachingAllocator* allocator = installed().load();
  if (!allocator) return;
  std::lock_guard lock(allocator->shared_mutex_);
  for (size_t c = 0; c < kMaxClasses; ++c)
    while (lists[c].count > 0) allocator->shared_[c].push(lists[c].pop());
}

CachingAllocator::ThreadCache* CachingAllocator::thread_cache() {
  if (thread_cache_gone) return nullptr;
  static thread_local ThreadCache cache;
  return &cache;
}

void CachingAllocator::refill(FreeList& list, size_t size_class) {
  const size_t size = classes_.sizes[size_class];
  const size_t wanted = std::max<size_t>(1, 16384 / size);
  std::lock_guard lock(shared_mutex_);
  FreeList& shared = shared_[size_class];
  if (shared.count == 0) {
    char* run = arena_.allocate(kRunBytes);
    if (!run) throw_error(ExitCode::kResource, "out of memory: the system gave no more than ", arena_.reserved_bytes(), " bytes");
    ASAN_UNPOISON_MEMORY_REGION(run, kRunBytes);  // it may be a large block freed before
    for (size_t offset = 0; offset + size <= kRunBytes; offset += size) {
      Header* header = reinterpret_cast<Header*>(run + offset);
      header->block_size = size;
      header->size_class = static_cast<int64_t>(size_class);
      ASAN_POISON_MEMORY_REGION(header + 1, size - sizeof(Header));
      shared.push(header);
    }
  }
  for (size_t i = 0; i < wanted && shared.count > 0; ++i) list.push(shared.pop());
}

Header* CachingAllocator::allocate_small(size_t size_class) {
  if (ThreadCache* cache = thread_cache()) {
    FreeList& list = cache->lists[size_class];
    if (list.count == 0) refill(list, size_class);
    return list.pop();
  }
  FreeList one;
  refill(one, size_class);
  Header* header = one.pop();
  std::lock_guard lock(shared_mutex_);
  while (one.count > 0) shared_[size_class].push(one.pop());
  return header;
}

void CachingAllocator::free_small(Header* header) {
  const size_t c = static_cast<size_t>(header->size_class);
  ThreadCache* cache = thread_cache();
  if (cache && (cache->lists[c].count + 1) * classes_.sizes[c] <= kThreadBytes) {
    cache->lists[c].push(header);
    return;
  }
  std::lock_guard lock(shared_mutex_);
  shared_[c].push(header);
  // A thread that only frees would go through the lock each time: hand over half of its list at once.
  if (cache)
    for (size_t left = cache->lists[c].count / 2; left > 0; --left) shared_[c].push(cache->lists[c].pop());
}

void CachingAllocator::raise(std::atomic<int64_t>& highest, int64_t to) {
  int64_t value = highest.load(std::memory_order_relaxed);
  while (to > value && !highest.compare_exchange_weak(value, to, std::memory_order_relaxed)) {}
}

void CachingAllocator::count_allocation(int64_t bytes) {
  count_.fetch_add(1, std::memory_order_relaxed);
  const int64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  raise(needed_, live);
  raise(peak_, live + other_.load(std::memory_order_relaxed));
}

size_t CachingAllocator::keep_limit() const {
  const int64_t live = live_.load(std::memory_order_relaxed), needed = needed_.load(std::memory_order_relaxed);
  return static_cast<size_t>(std::max<int64_t>(0, needed / 4 * 5 + (int64_t{64} << 20) - live));
}

c10::DataPtr CachingAllocator::allocate(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &deallocate, cpu};
  if (bytes > (size_t{1} << 62)) throw_error(ExitCode::kResource, "out of memory: ", bytes, " bytes asked for");
  const size_t whole = bytes + sizeof(Header);
  Header* header = nullptr;
  if (whole <= kLargestSmall) {
    header = allocate_small(classes_.of_units[(whole + 63) / 64]);
  } else {
    const size_t block_size = (whole + Arena::kPage - 1) / Arena::kPage * Arena::kPage;
    char* block = arena_.allocate(block_size);
    if (!block) throw_error(ExitCode::kResource, "out of memory: ", bytes, " bytes asked for, ", live_.load(), " bytes in use by tensors");
    ASAN_UNPOISON_MEMORY_REGION(block, block_size);
    header = reinterpret_cast<Header*>(block);
    header->block_size = block_size;
    header->size_class = -1;
  }
  header->asked = bytes;
  count_allocation(static_cast<int64_t>(bytes));
  void* data = header + 1;
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(data) + (bytes + 7) / 8 * 8, header->block_size - sizeof(Header) - (bytes + 7) / 8 * 8);
  return {data, data, &deallocate, cpu};
}

void CachingAllocator::deallocate(void* data) {
  if (!data) return;
  CachingAllocator& self = *installed().load();
  Header* header = static_cast<Header*>(data) - 1;
  self.live_.fetch_sub(static_cast<int64_t>(header->asked), std::memory_order_relaxed);
  if (header->size_class >= 0) {
    ASAN_POISON_MEMORY_REGION(data, header->block_size - sizeof(Header));
    self.free_small(header);
    return;
  }
  const size_t block_size = header->block_size;
  ASAN_POISON_MEMORY_REGION(header, block_size);
  if (self.arena_.free(reinterpret_cast<char*>(header), block_size) > self.keep_limit()) self.arena_.trim(self.keep_limit());
}

MemoryStats CachingAllocator::stats() {
  MemoryStats stats;
  stats.live_bytes = live_.load() + other_.load();
  stats.peak_bytes = peak_.load();
  stats.num_allocations = count_.load();
  stats.cached_bytes = static_cast<int64_t>(arena_.cached_bytes());
  stats.reserved_bytes = static_cast<int64_t>(arena_.reserved_bytes());
  return stats;
}

}  // namespace
}  // namespace detail

void install_caching_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto* allocator = new detail::CachingAllocator();
    detail::installed().store(allocator);
    c10::SetCPUAllocator(allocator, /*priority=*/1);
  });
}

bool caching_allocator_installed() { return detail::installed().load() != nullptr; }

MemoryStats memory_stats() {
  detail::CachingAllocator* allocator = detail::installed().load();
  return allocator ? allocator->stats() : MemoryStats{};
}

void count_other_memory(int64_t bytes) {
  if (auto* allocator = detail::installed().load()) allocator->count_other(bytes);
}

void reset_peak_memory() {
  if (auto* allocator = detail::installed().load()) allocator->reset_peak();
}

void release_cached_memory() {
  if (auto* allocator = detail::installed().load()) allocator->trim(0);
}

}  // namespace plait
