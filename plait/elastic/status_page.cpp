#include "plait/elastic/status_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "plait/base/error.h"

namespace plait {

namespace {

RankStatus* map_page(int fd) {
  void* memory = ::mmap(nullptr, sizeof(RankStatus), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<RankStatus*>(memory);
}

}  // namespace

StatusPage StatusPage::create() {
  StatusPage page;
  page.fd_ = FileDescriptor(::memfd_create("plait_status", MFD_CLOEXEC));
  if (page.fd_.is_open() && ::ftruncate(page.fd_.get(), sizeof(RankStatus)) == 0) page.status_ = map_page(page.fd_.get());
  if (!page.status_) throw_error(ExitCode::kResource, "no page for the status of a rank: ", std::strerror(errno));
  new (page.status_) RankStatus;
  return page;
}

StatusPage StatusPage::attach(int fd) {
  StatusPage page;
  struct stat what {};
  // A wrapper may have closed the descriptor, and its number may be another file now.
  if (fd < 0 || ::fstat(fd, &what) != 0 || !S_ISREG(what.st_mode) || what.st_nlink != 0 || what.st_size != sizeof(RankStatus)) return page;
  page.status_ = map_page(fd);
  if (!page.status_) return page;
  page.fd_ = FileDescriptor(fd);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return page;
}

StatusPage::StatusPage(StatusPage&& other) noexcept : fd_(std::move(other.fd_)), status_(std::exchange(other.status_, nullptr)) {}

StatusPage& StatusPage::operator=(StatusPage&& other) noexcept {
  if (this != &other) {
    unmap();
    fd_ = std::move(other.fd_);
    status_ = std::exchange(other.status_, nullptr);
  }
  return *this;
}

StatusPage::~StatusPage() { unmap(); }

void StatusPage::unmap() {
  if (status_) ::munmap(status_, sizeof(RankStatus));
  status_ = nullptr;
}

}  // namespace plait
