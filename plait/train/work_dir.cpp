#include "plait/train/work_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "plait/base/error.h"

namespace plait {

namespace {

[[noreturn]] void refuse(const std::string& path, int error) {
  ExitCode code = error == ENOSPC || error == EDQUOT || error == EMFILE ? ExitCode::kResource : ExitCode::kUsage;
  throw_error(code, "train.work_dir ", path, " cannot be written: ", std::strerror(error),
              "; give a folder that this user may write with --work_dir");
}

}  // namespace

WorkDir::WorkDir(const std::string& path) : path_(path) {
  std::error_code error;
  std::filesystem::create_directories(path + "/logs", error);
  if (error) refuse(path, error.value());
  std::string lock = file(".lock");
  lock_fd_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_fd_ < 0) refuse(path, errno);
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    ssize_t n = ::pread(lock_fd_, holder, sizeof holder - 1, 0);
    ::close(lock_fd_);
    throw_error(ExitCode::kBusy, "train.work_dir ", path, " is in use by process ", n > 0 ? holder : "unknown",
                "; wait for it to end or give another folder with --work_dir");
  }
  std::string own = std::to_string(::getpid());
  if (::ftruncate(lock_fd_, 0) != 0 || ::pwrite(lock_fd_, own.data(), own.size(), 0) < 0) {
    int failed = errno;
    ::close(lock_fd_);
    refuse(path, failed);
  }
}

WorkDir::~WorkDir() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

}  // namespace plait
