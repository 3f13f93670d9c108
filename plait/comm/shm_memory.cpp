#include "plait/comm/shm_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

// Shared memory is a wish of plait's, not of the user's: what else there is.
constexpr const char* kWithoutSharedMemory = "; train.comm.backend: gloo does without";

[[noreturn]] void throw_unmapped(size_t size_bytes) {
  throw_error(ExitCode::kResource, "cannot map ", size_bytes, " bytes of shared memory: ", std::strerror(errno),
              errno == ENOMEM ? " (ulimit -v)" : "", kWithoutSharedMemory);
}

std::string link_text(const char* path) {
  char text[256];
  ssize_t n = ::readlink(path, text, sizeof text);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string("?");
}

enum class Look { kFound, kGone, kDenied };

struct ProcessStat {
  char state = '?';
  unsigned long flags = 0;  // the kernel's PF_...
  unsigned long long start_time = 0;
};
constexpr unsigned long kExiting = 0x4;  // PF_EXITING

// Of /proc/PID/stat fields 3, 9 and 22, counted after the name, which may hold blanks and brackets. Denied: this process has no descriptor
// left, or the like; it says nothing of the other.
Look read_stat(pid_t pid, ProcessStat* found) {
  const int fd = ::open(cat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ESRCH ? Look::kGone : Look::kDenied;
  char text[1024];
  const ssize_t length = ::read(fd, text, sizeof text);
  ::close(fd);
  if (length <= 0) return Look::kGone;
  const std::string line(text, static_cast<size_t>(length));
  auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return Look::kGone;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  fields >> found->state;
  for (int field = 4; field < 9; ++field) fields >> skipped;
  fields >> found->flags;
  for (int field = 10; field < 22; ++field) fields >> skipped;
  return fields >> found->start_time ? Look::kFound : Look::kGone;
}

}  // namespace

SharedMemory SharedMemory::create(size_t size_bytes) {
  SharedMemory memory;
  memory.fd_ = ::memfd_create("plait", MFD_CLOEXEC);
  if (memory.fd_ < 0 || ::fchmod(memory.fd_, 0600) != 0 || ::ftruncate(memory.fd_, static_cast<off_t>(size_bytes)) != 0)
    throw_error(ExitCode::kResource, "no shared memory of ", size_bytes, " bytes between ranks: ", std::strerror(errno),
                errno == EFBIG    ? " (ulimit -f)"
                : errno == EMFILE ? " (ulimit -n)"
                                  : "",
                kWithoutSharedMemory);
  memory.map(size_bytes);
  return memory;
}

SharedMemory SharedMemory::attach(const std::string& address, size_t size_bytes) {
  SharedMemory memory;
  auto slash = address.find('/');
  std::string path = cat("/proc/", address.substr(0, slash), "/fd/", slash == std::string::npos ? "" : address.substr(slash + 1));
  memory.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info {};
  if (memory.fd_ < 0 || ::fstat(memory.fd_, &info) != 0) {
    const int cause = errno;
    throw_error(cause == ENOENT || cause == ESRCH ? ExitCode::kPeerLost : ExitCode::kResource, "cannot open the shared memory of process ",
                address.substr(0, slash), " (", path, "): ", std::strerror(cause), cause == EMFILE ? " (ulimit -n)" : "");
  }
  if (info.st_size != static_cast<off_t>(size_bytes))
    throw_error(ExitCode::kBug, "shared memory at ", path, " has ", info.st_size, " bytes instead of ", size_bytes);
  memory.map(size_bytes);
  memory.release_address();
  return memory;
}

void SharedMemory::map(size_t size_bytes) {
  // Large pieces begin on a huge page: cut out of a reservation that is one larger.
  const size_t slack = size_bytes >= kHugePage ? kHugePage : 0;
  auto* reserved = static_cast<char*>(::mmap(nullptr, size_bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (reserved == MAP_FAILED) throw_unmapped(size_bytes);
  const size_t before = slack ? (kHugePage - reinterpret_cast<uintptr_t>(reserved) % kHugePage) % kHugePage : 0;
  data_ = reserved + before;
  size_bytes_ = size_bytes;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t after = before + (size_bytes + page - 1) / page * page;
  if (before > 0) ::munmap(reserved, before);
  if (slack > 0 && after < size_bytes + slack) ::munmap(reserved + after, size_bytes + slack - after);
  if (::mmap(data_, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd_, 0) == MAP_FAILED)
    throw_unmapped(size_bytes);
  ::madvise(data_, size_bytes, MADV_HUGEPAGE);  // taken where the system allows it for shared memory
}

void SharedMemory::take_huge_pages(size_t bytes) {
  const size_t whole = std::min(bytes, size_bytes_) / kHugePage * kHugePage;
  if (whole == 0) return;
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;  // of the kernel, younger than this C library
#endif
  // A huge page is made of one that holds something. All in one call: each waits until every core has emptied its lists of fresh pages,
  // milliseconds on busy ones. What the kernel refuses stays as it is.
  for (size_t at = 0; at < whole; at += kHugePage) data_[at] = 0;
  ::madvise(data_, whole, kCollapse);
}

void SharedMemory::empty() { ::madvise(data_, size_bytes_, MADV_REMOVE); }

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) ::munmap(data_, size_bytes_);
  release_address();
}

std::string SharedMemory::address() const {
  PLAIT_CHECK(fd_ >= 0, "shared memory without an address");
  return cat(::getpid(), "/", fd_);
}

void SharedMemory::release_address() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string machine_identity() {
  std::string boot = "?";
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  char host[256] = "";  // nodes that are only names of one machine still count as nodes
  ::gethostname(host, sizeof host - 1);
  return cat(boot, " ", link_text("/proc/self/ns/pid"), " ", link_text("/proc/self/ns/user"), " ", ::getuid(), " ", host);
}

unsigned long long process_start_time(pid_t pid) {
  ProcessStat found;
  return read_stat(pid, &found) == Look::kFound ? found.start_time : 0;
}

Life process_life(pid_t pid, unsigned long long start_time) {
  ProcessStat found;
  switch (read_stat(pid, &found)) {
    case Look::kFound:
      if (found.start_time != start_time || found.state == 'Z' || found.state == 'X') return Life::kEnded;
      return found.flags & kExiting ? Life::kEnding : Life::kAlive;
    case Look::kGone: return Life::kEnded;
    case Look::kDenied: break;
  }
  return ::kill(pid, 0) == 0 || errno == EPERM ? Life::kAlive : Life::kEnded;
}

}  // namespace plait::detail
