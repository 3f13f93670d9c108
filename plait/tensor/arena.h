// Arena: large memory blocks for the caching allocator: segments from mmap, best-fit reuse, neighbours merged, pages of free blocks given
// back above a limit. Knows nothing of tensors. Thread safe (one lock; blocks are large, so calls are few).
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace plait::detail {

class Arena {
 public:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kSegment = size_t{256} << 20;  // address space taken at once; resident only where touched

  // size: a multiple of kPage. Returns page-aligned memory, or nullptr when the system has none left.
  char* allocate(size_t size);
  // Returns the resident bytes of all free blocks now.
  size_t free(char* block, size_t size);
  // Gives pages back, largest blocks first, until at most `keep` bytes of free memory are resident.
  void trim(size_t keep);

  size_t cached_bytes();
  size_t reserved_bytes();

 private:
  using FreeMap = std::map<char*, size_t>;  // begin -> size; free blocks never touch each other

  void insert_free(char* block, size_t size);
  FreeMap::iterator erase_free(FreeMap::iterator it);
  void merge_free(char* block, size_t size);  // inserts it as one with the free blocks beside it
  void add_cached(char* begin, char* end);
  size_t remove_cached(char* begin, char* end);  // what of it was there
  bool add_segment(size_t size);

  std::mutex mutex_;
  FreeMap free_;
  std::map<char*, char*> cached_ranges_;  // begin -> end: parts of free blocks that were used since the system last got them back
  std::set<std::pair<size_t, char*>> by_size_;
  char* top_ = nullptr;  // [top_, segment_end_): never used part of the newest segment
  char* segment_end_ = nullptr;
  size_t cached_ = 0, reserved_ = 0;  // cached_: of cached_ranges_
};

}  // namespace plait::detail
