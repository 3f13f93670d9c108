#include "plait/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "plait/base/error.h"

namespace plait {

namespace {

std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Hosts that share a folder differ by name, processes by pid, live objects by `attempt` (O_EXCL finds a free one).
std::string temporary_name(const std::string& path, int attempt) {
  char host[64] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return cat(path, ".tmp-", static_cast<const char*>(host), "-", getpid(), "-", attempt);
}

}  // namespace

void throw_file_error(const char* action, const std::string& path, int error_number) {
  ExitCode code = ExitCode::kUsage;
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EIO:
    case EFBIG: code = ExitCode::kResource; break;
    default: break;
  }
  throw_error(code, "cannot ", action, " ", path, ": ", static_cast<const char*>(std::strerror(error_number)));
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  // A name may be taken by another thread, or left by a killed process that had the same pid (usual in containers).
  for (int attempt = 0; attempt < 1000; ++attempt) {
    temporary_path_ = temporary_name(path_, attempt);
    descriptor_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0 || errno != EEXIST) break;
  }
  if (descriptor_ < 0) throw_file_error("create", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_path_.c_str());
}

void AtomicFile::fail(const char* action, int error_number) const { throw_file_error(action, path_, error_number); }

void AtomicFile::write(const void* data, size_t num_bytes) {
  PLAIT_CHECK(descriptor_ >= 0, path_, " is already committed");
  auto* at = static_cast<const char*>(data);
  while (num_bytes > 0) {
    ssize_t written = ::write(descriptor_, at, num_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    at += written;
    num_bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::write_at(uint64_t offset, const void* data, size_t num_bytes) {
  PLAIT_CHECK(descriptor_ >= 0, path_, " is already committed");
  auto* at = static_cast<const char*>(data);
  while (num_bytes > 0) {
    ssize_t written = pwrite(descriptor_, at, num_bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    at += written;
    offset += static_cast<uint64_t>(written);
    num_bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  PLAIT_CHECK(descriptor_ >= 0, path_, " is already committed");
  if (fsync(descriptor_) != 0) fail("fsync", errno);
  // close() can report a late write error (network file systems); the destructor must then still remove the temporary.
  int closing = std::exchange(descriptor_, -1);
  int error_number = close(closing) != 0 ? errno : 0;
  if (error_number == 0 && rename(temporary_path_.c_str(), path_.c_str()) != 0) error_number = errno;
  if (error_number != 0) {
    unlink(temporary_path_.c_str());
    fail("rename to", error_number);
  }
  int folder = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // the rename is done; only its durability across a power cut is open
  int synced = fsync(folder);
  error_number = errno;
  close(folder);
  // Some file systems cannot sync folders (EINVAL); a real I/O error is told.
  if (synced != 0 && error_number != EINVAL && error_number != ENOTSUP) fail("fsync the folder of", error_number);
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace plait
