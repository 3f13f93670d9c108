#include "plait/elastic/rank_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "plait/base/log.h"

namespace plait {

namespace {

// A terminal and a launcher may both send the same request: those that come together are one.
constexpr std::chrono::seconds kOneRequest{1};

bool is_pipe(int fd) {
  struct stat what {};
  return fd >= 0 && ::fstat(fd, &what) == 0 && S_ISFIFO(what.st_mode);
}

// By nohup, or a shell for its background jobs; a blocked signal would reach us all the same.
bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// As if nobody had watched.
void end_by(int signal) {
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(signal, &plain, nullptr);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace

RankWatch::RankWatch(const RankEnvironment& environment) : page_(StatusPage::attach(environment.status_fd)) {
  if (environment.status_fd >= 0 && !page_.status())
    log_warning("the launcher's status page (descriptor ", environment.status_fd, ") did not reach this process: closed on the way");
  if (is_pipe(environment.launcher_fd)) {
    launcher_ = FileDescriptor(environment.launcher_fd);
    ::fcntl(launcher_.get(), F_SETFD, FD_CLOEXEC);
  } else if (environment.launcher_fd >= 0) {
    log_warning("the launcher's pipe (descriptor ", environment.launcher_fd, ") did not reach this process: closed on the way");
  }
  sigset_t mask;
  sigemptyset(&mask);
  for (int signal : {SIGINT, SIGTERM}) {
    if (!is_ignored(signal)) sigaddset(&mask, signal);
  }
  signals_ = FileDescriptor(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  end_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  if (!signals_.is_open() || !end_.is_open()) throw_error(ExitCode::kResource, "cannot watch for signals: ", std::strerror(errno));
  ::pthread_sigmask(SIG_BLOCK, &mask, &old_mask_);
  thread_ = std::thread([this] { watch(); });
}

RankWatch::~RankWatch() {
  uint64_t one = 1;
  while (::write(end_.get(), &one, sizeof one) < 0 && errno == EINTR) {}
  thread_.join();
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void RankWatch::watch() {
  pollfd watched[] = {{end_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}, {launcher_.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(watched, 3, -1) < 0) continue;
    if (watched[0].revents) return;
    if (watched[2].revents) ::_exit(static_cast<int>(ExitCode::kPeerLost));  // its write end went with the launcher
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) answer(static_cast<int>(info.ssi_signo));
  }
}

void RankWatch::answer(int signal) {
  const auto now = std::chrono::steady_clock::now();
  if (stop_.signal.load() != 0 && now - first_signal_ < kOneRequest) return;
  if (stop_.signal.load() != 0 || !stop_.heeded.load()) end_by(signal);
  first_signal_ = now;
  stop_.signal.store(signal);
}

}  // namespace plait
