#include "plait/rendezvous/secret.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "plait/base/error.h"
#include "plait/base/file_descriptor.h"
#include "plait/base/sha256.h"
#include "plait/rendezvous/hello.h"

namespace plait::rendezvous {

namespace {

constexpr size_t kMostSecretBytes = 4096;

std::string read_all(int fd, const std::string& name) {
  std::string text;
  char buffer[1024];
  while (true) {
    ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_error(ExitCode::kAuth, name, " cannot be read: ", std::strerror(errno));
    if (n == 0) break;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMostSecretBytes)
      throw_error(ExitCode::kAuth, name, " is longer than a secret may be (", kMostSecretBytes,
                  " bytes); make one with: openssl rand -hex 32");
  }
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  if (text.empty()) throw_error(ExitCode::kAuth, name, " is empty; make a secret with: openssl rand -hex 32");
  return text;
}

std::string octal(unsigned mode) {
  std::string text;
  for (int shift = 9; shift >= 0; shift -= 3) text += static_cast<char>('0' + (mode >> shift & 7));
  return text;
}

}  // namespace

std::string make_secret() {
  std::string bytes = random_bytes(32);
  Sha256Digest digest;
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return hex(digest);
}

std::string read_secret_file(const std::string& path, const std::string& origin) {
  const std::string name = cat(origin, " ", path);
  // Without waiting: a FIFO is no regular file, but opening one would hang.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.is_open() || ::fstat(file.get(), &info) != 0)
    throw_error(ExitCode::kAuth, name, " cannot be opened: ", std::strerror(errno),
                "; it must be a file with the secret of the job, the same on all nodes, mode 0600");
  if (!S_ISREG(info.st_mode)) throw_error(ExitCode::kAuth, name, " is not a regular file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    throw_error(ExitCode::kAuth, name, " belongs to another user (uid ", info.st_uid, "; this is uid ", ::geteuid(),
                "), who knows the secret and can change it; copy it to a file of your own and: chmod 600 FILE");
  if ((info.st_mode & 077) != 0)
    throw_error(ExitCode::kAuth, name, " can be read or written by others (mode ", octal(info.st_mode & 07777), "); run: chmod 600 ", path);
  return read_all(file.get(), name);
}

std::string read_secret_descriptor(int fd) {
  FileDescriptor owned(fd);
  ::lseek(fd, 0, SEEK_SET);  // a script may run the program twice over one file in memory; a pipe has no position and needs none
  return read_all(fd, cat("the secret on descriptor ", fd));
}

}  // namespace plait::rendezvous
