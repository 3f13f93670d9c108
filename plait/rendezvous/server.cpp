#include "plait/rendezvous/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>

#include "plait/rendezvous/socket_options.h"

namespace plait::rendezvous {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kReadBytes = size_t{64} << 10;
// How long a peer has to read our last words.
constexpr milliseconds kFlushTime{2000};
constexpr int kClosingNormally = 1, kClosingInHurry = 2;

SocketAddress reachable(SocketAddress address) {
  if (!address.is_any()) return address;
  if (address.storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_addr = in6addr_loopback;
  }
  return address;
}

}  // namespace

class Server::Loop {
 public:
  Loop(Listening listening, Options options, int wake, const std::atomic<int>& closing)
      : listening_(std::move(listening)), options_(std::move(options)), wake_(wake), closing_(closing),
        service_(options_.service, Clock::now()) {}

  void run() {
    while (!is_over(Clock::now())) {
      std::vector<Service::Id> ids;
      std::vector<pollfd> watched = what_to_watch(ids);
      bool timed = service_.has_deadlines() || closing_ != 0 || Clock::now() < deaf_until_;
      if (::poll(watched.data(), watched.size(), timed ? 50 : -1) < 0 && errno != EINTR) return;
      if (watched[0].revents != 0) drain_wake();
      for (size_t i = 0; i < listening_.sockets.size(); ++i) {
        if (watched[1 + i].revents != 0) accept_all(listening_.sockets[i].get());
      }
      for (size_t i = 0; i < ids.size(); ++i) serve(ids[i], watched[1 + listening_.sockets.size() + i].revents);
      service_.tick(Clock::now());
      flush_all();
    }
  }

 private:
  struct Peer {
    FileDescriptor fd;
    std::optional<Clock::time_point> ending_since;
  };

  std::vector<pollfd> what_to_watch(std::vector<Service::Id>& ids) const {
    std::vector<pollfd> watched{{wake_, POLLIN, 0}};
    bool deaf = Clock::now() < deaf_until_;
    for (const auto& socket : listening_.sockets) watched.push_back({deaf ? -1 : socket.get(), POLLIN, 0});
    for (const auto& [id, peer] : peers_) {
      short events = POLLRDHUP;
      if (service_.wants_input(id)) events |= POLLIN;
      if (!service_.output(id).empty()) events |= POLLOUT;
      watched.push_back({peer.fd.get(), events, 0});
      ids.push_back(id);
    }
    return watched;
  }

  bool is_over(Clock::time_point now) {
    int closing = closing_;
    if (closing == 0) return false;
    if (!closing_since_) closing_since_ = now;
    auto waited = now - *closing_since_;
    bool unsent = std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) { return !service_.output(entry.first).empty(); });
    if (unsent && waited < kFlushTime) return false;
    if (service_.failure()) return service_.all_told() || waited >= options_.failure_time;
    return closing == kClosingInHurry || service_.all_left() || waited >= options_.goodbye_time;
  }

  void drain_wake() {
    uint64_t count = 0;
    [[maybe_unused]] auto n = ::read(wake_, &count, sizeof count);
  }

  void accept_all(int listener) {
    // Some a turn: a flood of newcomers must not keep those who are here from being served.
    for (int i = 0; i < 64; ++i) {
      FileDescriptor fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.is_open()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          service_.evict_stranger();
          deaf_until_ = Clock::now() + milliseconds(100);
        }
        if (errno != EINTR && errno != ECONNABORTED) return;
        continue;
      }
      set_stream_options(fd.get());
      Service::Id id = next_id_++;
      service_.open(id, peer_address(fd.get()).text(), local_address(fd.get()).host(), Clock::now());
      peers_[id].fd = std::move(fd);
    }
  }

  void serve(Service::Id id, short events) {
    if (events == 0) return;
    if ((events & POLLIN) != 0 && service_.wants_input(id)) {
      char bytes[kReadBytes];
      ssize_t n = ::recv(peers_.at(id).fd.get(), bytes, sizeof bytes, 0);
      if (n > 0) return service_.receive(id, {bytes, static_cast<size_t>(n)}, Clock::now());
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      return drop(id);
    }
    if ((events & POLLOUT) != 0) return;  // flush_all() sends
    // The peer has gone while it was being answered; nobody will read the answer. A peer that has closed only its sending side after a
    // last request is not known to this protocol.
    if ((events & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) drop(id);
  }

  void drop(Service::Id id) {
    peers_.erase(id);
    service_.close(id);
  }

  void flush_all() {
    for (auto it = peers_.begin(); it != peers_.end();) {
      auto id = (it++)->first;
      if (!flush(id)) drop(id);
    }
  }

  // False: the connection is over.
  bool flush(Service::Id id) {
    Peer& peer = peers_.at(id);
    while (!service_.output(id).empty()) {
      const std::string& output = service_.output(id);
      ssize_t n = ::send(peer.fd.get(), output.data(), output.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (n <= 0) return false;
      service_.sent(id, static_cast<size_t>(n), Clock::now());
    }
    if (!service_.is_ending(id)) return true;
    if (!peer.ending_since) {
      peer.ending_since = Clock::now();
      if (service_.output(id).empty()) ::shutdown(peer.fd.get(), SHUT_WR);
    }
    return linger(peer, service_.output(id).empty());
  }

  // Closing with unread input resets the connection, and the peer may then lose our last words: what it still sends is read and dropped
  // for a moment. False: it can be closed.
  bool linger(Peer& peer, bool all_sent) {
    if (Clock::now() - *peer.ending_since > kFlushTime) return false;
    if (!all_sent) return true;
    char bytes[4096];
    for (int i = 0; i < 16; ++i) {
      ssize_t n = ::recv(peer.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (n < 0) return true;
    }
    return true;
  }

  Listening listening_;
  Options options_;
  int wake_;
  const std::atomic<int>& closing_;
  Service service_;
  std::map<Service::Id, Peer> peers_;
  Service::Id next_id_ = 0;
  std::optional<Clock::time_point> closing_since_;
  Clock::time_point deaf_until_{};
};

Server::Server(Listening listening, Options options) : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PLAIT_CHECK(!listening.sockets.empty(), "a server without a socket");
  if (!wake_.is_open()) throw_error(ExitCode::kResource, "no descriptor for the rendezvous: ", std::strerror(errno));
  own_address_ = reachable(local_address(listening.sockets[0].get()));
  loop_ = std::make_unique<Loop>(std::move(listening), std::move(options), wake_.get(), closing_);
  // Signals are for the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { loop_->run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Server::~Server() {
  closing_ = std::uncaught_exceptions() > 0 ? kClosingInHurry : kClosingNormally;
  uint64_t one = 1;
  [[maybe_unused]] auto n = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

}  // namespace plait::rendezvous
