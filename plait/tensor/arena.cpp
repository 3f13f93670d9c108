#include "plait/tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace plait::detail {

void Arena::insert_free(char* block, size_t size, size_t resident) {
  free_[block] = {size, resident};
  by_size_.insert({size, block});
  cached_ += resident;
}

Arena::FreeMap::iterator Arena::erase_free(FreeMap::iterator it) {
  by_size_.erase({it->second.size, it->first});
  cached_ -= it->second.resident;
  return free_.erase(it);
}

bool Arena::add_segment(size_t size) {
  size_t length = std::max(kSegment, (size + kHugePage - 1) / kHugePage * kHugePage);
  // One huge page more, to cut an aligned piece out of it. Under a tight address-space limit take just what is needed.
  void* memory = mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    length = (size + kHugePage - 1) / kHugePage * kHugePage;
    memory = mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
  }
  char* begin = static_cast<char*>(memory);
  char* aligned = begin + (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  char* end = begin + length + kHugePage;
  if (end != aligned + length) munmap(aligned + length, static_cast<size_t>(end - (aligned + length)));
  if (huge_pages_) madvise(aligned, length, MADV_HUGEPAGE);
  // The rest of the segment before can serve as a free block that was never touched.
  if (top_ != segment_end_) insert_free(top_, static_cast<size_t>(segment_end_ - top_), 0);
  top_ = aligned;
  segment_end_ = aligned + length;
  reserved_ += length;
  return true;
}

char* Arena::allocate(size_t size) {
  std::lock_guard lock(mutex_);
  auto fit = by_size_.lower_bound({size, nullptr});
  if (fit != by_size_.end()) {
    auto it = free_.find(fit->second);
    char* block = it->first;
    FreeBlock found = it->second;
    erase_free(it);
    if (found.size > size) insert_free(block + size, found.size - size, found.resident - std::min(found.resident, size));
    return block;
  }
  // A free block that ends at the top grows into it.
  if (!free_.empty()) {
    auto last = top_ ? free_.lower_bound(top_) : free_.begin();
    if (last != free_.begin()) {
      --last;
      char* block = last->first;
      if (block + last->second.size == top_ && static_cast<size_t>(segment_end_ - block) >= size) {
        erase_free(last);
        top_ = block + size;
        return block;
      }
    }
  }
  if (static_cast<size_t>(segment_end_ - top_) < size && !add_segment(size)) return nullptr;
  char* block = top_;
  top_ += size;
  return block;
}

size_t Arena::free(char* block, size_t size) {
  std::lock_guard lock(mutex_);
  size_t resident = size;
  auto next = free_.lower_bound(block);
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second.size == block) {
      block = previous->first;
      size += previous->second.size;
      resident += previous->second.resident;
      next = erase_free(previous);
    }
  }
  // Segments may lie side by side in memory: merging across their border is harmless, as they are never unmapped.
  if (next != free_.end() && block + size == next->first) {
    size += next->second.size;
    resident += next->second.resident;
    erase_free(next);
  }
  insert_free(block, size, resident);
  return cached_;
}

void Arena::trim(size_t keep) {
  std::lock_guard lock(mutex_);
  for (auto it = by_size_.rbegin(); it != by_size_.rend() && cached_ > keep; ++it) {
    FreeBlock& block = free_.find(it->second)->second;
    if (block.resident == 0) continue;
    madvise(it->second, block.size, MADV_DONTNEED);
    cached_ -= block.resident;
    block.resident = 0;
  }
}

size_t Arena::cached_bytes() {
  std::lock_guard lock(mutex_);
  return cached_;
}

size_t Arena::reserved_bytes() {
  std::lock_guard lock(mutex_);
  return reserved_;
}

}  // namespace plait::detail
