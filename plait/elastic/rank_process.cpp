#include "plait/elastic/rank_process.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <system_error>

#include "plait/base/log.h"

namespace plait {

void throw_no_pipe(const char* what) {
  const int cause = errno;
  rlimit limit{};
  const bool none_left = cause == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  throw_error(ExitCode::kResource, "no pipe for ", what, ": ", std::strerror(cause),
              none_left ? cat(" (ulimit -n is ", limit.rlim_cur,
                              "); the launcher needs about 4 for each rank and 20 more: ulimit -n 65536 where the ", "system allows it")
                        : "");
}

namespace {

struct StreamEnds {
  FileDescriptor read_end, write_end;
};

StreamEnds open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_no_pipe("the output of a rank");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// A terminal of the same width as ours that passes bytes through unchanged, so that the rank draws its progress bar.
StreamEnds open_terminal(int like) {
  termios raw{};
  cfmakeraw(&raw);
  winsize size{};
  ::ioctl(like, TIOCGWINSZ, &size);
  int ours = -1, theirs = -1;
  if (::openpty(&ours, &theirs, nullptr, &raw, &size) != 0) return open_pipe();  // no terminals left: lines instead of a bar
  ::fcntl(ours, F_SETFD, FD_CLOEXEC);
  ::fcntl(theirs, F_SETFD, FD_CLOEXEC);
  return {FileDescriptor(ours), FileDescriptor(theirs)};
}

int run_guarded(const RankEnvironment& environment, const std::function<int(const RankEnvironment&)>& body) {
  try {
    return body(environment);
  } catch (const Error& error) {
    log_line(LogLevel::kError, error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    log_line(LogLevel::kError, "out of memory");
    return static_cast<int>(ExitCode::kResource);
  } catch (const std::system_error& error) {  // a std::thread that cannot be started throws this one
    const bool limit = error.code() == std::errc::resource_unavailable_try_again;
    log_line(LogLevel::kError, limit ? "no thread can be started: memory (ulimit -v) or processes (ulimit -u) are used up" : error.what());
    return static_cast<int>(limit ? ExitCode::kResource : ExitCode::kBug);
  } catch (const std::exception& error) {
    log_line(LogLevel::kError, error.what());
    return static_cast<int>(ExitCode::kBug);
  }
}

// The child's life. Never returns: destructors of the parent's objects must not run here.
[[noreturn]] void live_as_rank(const RankEnvironment& environment, pid_t parent, StreamEnds* streams,
                               const std::function<void()>& before_body, const std::function<int(const RankEnvironment&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(static_cast<int>(ExitCode::kPeerLost));  // it died before the line above
  // A session of its own, as torchrun gives its workers: signals of the terminal go to the launcher only, and a kernel that shares cores
  // between sessions first (autogroup) gives each rank its share instead of one share to all.
  ::setsid();
  ::dup2(streams[0].write_end.get(), STDOUT_FILENO);
  ::dup2(streams[1].write_end.get(), STDERR_FILENO);
  for (int i = 0; i < 2; ++i) {
    streams[i].read_end.reset();
    streams[i].write_end.reset();
  }
  int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  before_body();
  int code = run_guarded(environment, body);
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

bool RankProcess::failed() const { return wait_status && *wait_status != 0; }

bool RankProcess::killed_by_signal() const { return wait_status && WIFSIGNALED(*wait_status); }

int RankProcess::exit_code() const {
  if (!wait_status) return 0;
  return WIFEXITED(*wait_status) ? WEXITSTATUS(*wait_status) : static_cast<int>(ExitCode::kPeerLost);
}

std::string RankProcess::how_it_ended() const {
  if (!killed_by_signal()) return cat("exit code ", exit_code());
  const int signal = WTERMSIG(*wait_status);
  return cat("signal ", signal, " (", strsignal(signal), signal == SIGKILL ? ": by hand, or the system ran out of memory" : "", ")");
}

void RankProcess::send_signal(int signal) const {
  if (is_gone() || pid <= 0) return;
  if (::kill(-pid, signal) != 0) ::kill(pid, signal);  // its group exists a moment later than the process
}

void RankProcess::look() {
  int status = 0;
  if (is_gone() || pid <= 0) return;
  pid_t found = ::waitpid(pid, &status, WNOHANG);
  if (found == pid) wait_status = status;
  if (found < 0 && errno == ECHILD) wait_status = 0;  // somebody else of this process waited for it
}

RankProcess fork_rank(const RankEnvironment& environment, bool on_terminal, const std::function<void()>& before_body,
                      const std::function<int(const RankEnvironment&)>& body) {
  StreamEnds streams[2];
  for (int i = 0; i < 2; ++i) {
    int own = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
    streams[i] = on_terminal && ::isatty(own) ? open_terminal(own) : open_pipe();
  }
  std::cout.flush();
  std::fflush(nullptr);  // else the child would print it a second time
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) throw_error(ExitCode::kResource, "cannot start rank ", environment.rank, ": ", std::strerror(errno));
  if (pid == 0) live_as_rank(environment, parent, streams, before_body, body);
  RankProcess process;
  process.rank = environment.rank;
  process.pid = pid;
  for (int i = 0; i < 2; ++i) {
    process.output[i] = std::move(streams[i].read_end);
    ::fcntl(process.output[i].get(), F_SETFL, O_NONBLOCK);
  }
  return process;
}

}  // namespace plait
