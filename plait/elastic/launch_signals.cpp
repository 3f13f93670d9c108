#include "plait/elastic/launch_signals.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>

#include "plait/base/error.h"

namespace plait {

LaunchSignals::LaunchSignals() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // Ignored by nohup, or by a shell for its background jobs: a blocked signal would reach us all the same.
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) sigaddset(&mask, signal);
  }
  fd_ = FileDescriptor(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.is_open()) throw_error(ExitCode::kResource, "cannot watch the ranks (signalfd): ", std::strerror(errno));
  ::sigprocmask(SIG_BLOCK, &mask, &old_mask_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &old_pipe_);
}

LaunchSignals::~LaunchSignals() {
  take();  // what has been answered must not fire now
  restore_in_child();
}

std::vector<int> LaunchSignals::take() {
  std::vector<int> signals;
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

void LaunchSignals::restore_in_child() const {
  ::sigaction(SIGPIPE, &old_pipe_, nullptr);
  ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

}  // namespace plait
