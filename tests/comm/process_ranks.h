// Real processes as ranks, for tests: forked from the test program before it has any torch thread, each with a time limit.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/comm/launch.h"

namespace plait::testing {

struct ProcessResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string message;  // what the body threw, or wrote to its stream
  double seconds = 0;   // from the start of all
};

// A socket that listens on a free port of 127.0.0.1.
struct Listener {
  int fd = -1;
  int port = 0;
  Listener() {
    fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd, 64) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error("no listening socket");
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
};

// Runs body(0) ... body(n - 1) as processes and collects how each ended. A process alive after `limit` is killed.
inline std::vector<ProcessResult> run_processes(int n, const std::function<void(int)>& body, std::chrono::seconds limit) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  std::vector<ProcessResult> results(static_cast<size_t>(n));
  std::vector<pid_t> children;
  std::vector<int> pipes;
  for (int i = 0; i < n; ++i) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      int code = 0;
      std::string message;
      try {
        body(i);
      } catch (const Error& e) {
        code = static_cast<int>(e.code());
        message = e.what();
      } catch (const std::exception& e) {
        code = 99;
        message = e.what();
      }
      [[maybe_unused]] auto written = ::write(ends[1], message.data(), message.size());
      ::_exit(code);
    }
    ::close(ends[1]);
    children.push_back(child);
    pipes.push_back(ends[0]);
  }
  int left = n;
  bool killed = false;
  while (left > 0) {
    for (size_t i = 0; i < children.size(); ++i) {
      int status = 0;
      if (children[i] <= 0 || ::waitpid(children[i], &status, WNOHANG) != children[i]) continue;
      children[i] = 0;
      --left;
      results[i].seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (WIFEXITED(status)) results[i].exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) results[i].signal = WTERMSIG(status);
    }
    if (!killed && Clock::now() - start > limit) {
      for (pid_t child : children)
        if (child > 0) ::kill(child, SIGKILL);
      killed = true;
    }
    ::usleep(2000);
  }
  for (size_t i = 0; i < pipes.size(); ++i) {
    char buffer[8192];
    ssize_t count = 0;
    while ((count = ::read(pipes[i], buffer, sizeof buffer)) > 0) results[i].message.append(buffer, static_cast<size_t>(count));
    ::close(pipes[i]);
  }
  return results;
}

inline RendezvousOptions options_of(int rank, int64_t world_size, const Listener& listener, std::chrono::milliseconds timeout) {
  RendezvousOptions options;
  options.rank = options.local_rank = rank;
  options.world_size = world_size;
  options.master_port = listener.port;
  options.listen = rank == 0;
  options.listen_fd = rank == 0 ? listener.fd : -1;
  options.timeout = timeout;
  options.rendezvous_timeout = std::chrono::milliseconds(60000);
  options.secret = "secret of a test";
  return options;
}

}  // namespace plait::testing
