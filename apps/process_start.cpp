// What this process needs before anything else of it runs, even the initialisers of the libraries it is linked to: a current folder, three
// standard descriptors, writes beyond a file size limit that fail instead of killing, and one message where memory ends on any thread.
// The dynamic linker calls start_process by itself (.preinit_array); nothing else refers to this file.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "plait/base/error.h"

namespace plait {

namespace {

void say(const char* text) {
  for (const char* piece : {"plait: ", text, "\n"}) {
    if (::write(STDERR_FILENO, piece, std::strlen(piece)) < 0) return;
  }
}

// An exception that nothing catches: of a library's initialiser, or of a thread. Nothing here may allocate.
[[noreturn]] void end_by_uncaught() {
  const char* what = "bug in plait: an exception that nothing caught";
  int code = static_cast<int>(ExitCode::kBug);
  if (std::exception_ptr now = std::current_exception()) {
    try {
      std::rethrow_exception(now);
    } catch (const std::bad_alloc&) {
      what = "out of memory (ulimit -v tells this process's limit)";
      code = static_cast<int>(ExitCode::kResource);
    } catch (const std::exception& error) {
      what = error.what();
    } catch (...) {}
  }
  say(what);
  if (code == static_cast<int>(ExitCode::kBug)) std::abort();  // with its core file
  ::_exit(code);
}

void start_process(int, char**, char**) {
  // A descriptor below 3 that is free would be taken by the next pipe or socket, and prints would go into it.
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF && ::open("/dev/null", O_RDWR) < 0) ::_exit(static_cast<int>(ExitCode::kResource));
  }
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails with EFBIG, and the message names the file
  std::set_terminate(end_by_uncaught);
  // Libraries that torch loads look for it and end the process with a message of their own.
  char folder[PATH_MAX];
  if (!::getcwd(folder, sizeof folder) && errno == ENOENT) {
    say("the current folder does not exist any more: it was deleted; go to another one (cd) and start again");
    ::_exit(static_cast<int>(ExitCode::kUsage));
  }
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kStartProcess)(int, char**, char**) = start_process;

}  // namespace

}  // namespace plait
