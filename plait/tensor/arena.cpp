#include "plait/tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace plait::detail {

void Arena::insert_free(char* block, size_t size) {
  free_[block] = size;
  by_size_.insert({size, block});
}

Arena::FreeMap::iterator Arena::erase_free(FreeMap::iterator it) {
  by_size_.erase({it->second, it->first});
  return free_.erase(it);
}

void Arena::merge_free(char* block, size_t size) {
  auto next = free_.lower_bound(block);
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == block) {
      block = previous->first;
      size += previous->second;
      next = erase_free(previous);
    }
  }
  // Segments may lie side by side in memory: merging across their border is harmless, as they are never unmapped.
  if (next != free_.end() && block + size == next->first) {
    size += next->second;
    erase_free(next);
  }
  insert_free(block, size);
}

void Arena::add_cached(char* begin, char* end) {
  cached_ += static_cast<size_t>(end - begin);
  auto next = cached_ranges_.lower_bound(begin);
  if (next != cached_ranges_.end() && next->first == end) {
    end = next->second;
    next = cached_ranges_.erase(next);
  }
  if (next != cached_ranges_.begin() && std::prev(next)->second == begin) std::prev(next)->second = end;
  else cached_ranges_[begin] = end;
}

size_t Arena::remove_cached(char* begin, char* end) {
  size_t removed = 0;
  auto it = cached_ranges_.lower_bound(begin);
  if (it != cached_ranges_.begin() && std::prev(it)->second > begin) --it;
  while (it != cached_ranges_.end() && it->first < end) {
    auto [from, to] = *it;
    it = cached_ranges_.erase(it);
    if (from < begin) cached_ranges_[from] = begin;
    if (to > end) cached_ranges_[end] = to;
    removed += static_cast<size_t>(std::min(to, end) - std::max(from, begin));
  }
  cached_ -= removed;
  return removed;
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
  madvise(aligned, length, MADV_HUGEPAGE);
  // The rest of the segment before can serve as a free block that was never touched.
  if (top_ != segment_end_) merge_free(top_, static_cast<size_t>(segment_end_ - top_));
  top_ = aligned;
  segment_end_ = aligned + length;
  reserved_ += length;
  return true;
}

char* Arena::allocate(size_t size) {
  std::lock_guard lock(mutex_);
  auto fit = by_size_.lower_bound({size, nullptr});
  if (fit != by_size_.end()) {
    auto [found, block] = *fit;
    erase_free(free_.find(block));
    if (found > size) insert_free(block + size, found - size);
    remove_cached(block, block + size);
    return block;
  }
  // A free block that ends at the top grows into it.
  if (!free_.empty()) {
    auto last = top_ ? free_.lower_bound(top_) : free_.begin();
    if (last != free_.begin()) {
      --last;
      char* block = last->first;
      if (block + last->second == top_ && static_cast<size_t>(segment_end_ - block) >= size) {
        erase_free(last);
        remove_cached(block, top_);
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
  merge_free(block, size);
  add_cached(block, block + size);
  return cached_;
}

void Arena::trim(size_t keep) {
  std::lock_guard lock(mutex_);
  for (auto it = by_size_.rbegin(); it != by_size_.rend() && cached_ > keep; ++it) {
    auto [size, block] = *it;
    if (remove_cached(block, block + size) > 0) madvise(block, size, MADV_DONTNEED);
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
