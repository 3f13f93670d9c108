// SharedMemory: a piece of memory that several processes of one machine have mapped. It has no name in any file system: the owner
// publishes "process id, descriptor", the others open it through /proc. So nothing is left behind however the job ends, the size of
// /dev/shm is no limit, and only processes of the same user can open it. Pages count when they are first touched.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace plait::detail {

class SharedMemory {
 public:
  static constexpr size_t kHugePage = size_t{2} << 20;
  SharedMemory() = default;
  // A new piece of zeros. Throws Error(kResource).
  static SharedMemory create(size_t size_bytes);
  // The piece that create() made elsewhere, by its address(). Throws Error: kPeerLost when it is gone, kResource when it may not be opened.
  static SharedMemory attach(const std::string& address, size_t size_bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  ~SharedMemory();

  char* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  // "pid/descriptor" for attach(); of the creator only, and only until release_address().
  std::string address() const;
  // All others have attached: the descriptor is given back.
  void release_address();
  int32_t descriptor() const { return fd_; }

  // The first `bytes` of new memory: huge pages where the kernel can (Linux 6.1), in some 0.2 ms each.
  void take_huge_pages(size_t bytes);
  // Gives the pages back to the system, also those that others have mapped: they read zeros.
  void empty();

 private:
  void map(size_t size_bytes);
  char* data_ = nullptr;
  size_t size_bytes_ = 0;
  int fd_ = -1;
};

// Processes with the same text share a machine, its process ids and a user: they can attach each other's memory.
std::string machine_identity();

// kEnding: gives back its memory and descriptors, which takes a while where there is much of it. kEnded: also when nobody has waited for it
// yet, or when the number is another process's.
enum class Life { kAlive, kEnding, kEnded };
// Out of descriptors, it tells only whether there is a process of that number.
Life process_life(pid_t pid, unsigned long long start_time);
// Clock ticks since boot at which a process started, from /proc; 0 when there is no such process or /proc cannot be read.
unsigned long long process_start_time(pid_t pid);

}  // namespace plait::detail
