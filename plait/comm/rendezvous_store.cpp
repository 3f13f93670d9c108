#include "plait/comm/rendezvous_store.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

std::string address_text(const RendezvousOptions& options) { return cat(options.master_addr, ":", options.master_port); }

std::string first_line(const std::exception& e) {
  std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

// c10d writes its own warnings with stack traces before it throws; the Error that follows says it in one message. Whoever sets torch's
// TORCH_CPP_LOG_LEVEL gets what it asks for.
void quieten_torch_log() {
  c10::initLogging();
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

class SocketHandle {
 public:
  explicit SocketHandle(int fd) : fd_(fd) {}
  ~SocketHandle() {
    if (fd_ >= 0) ::close(fd_);
  }
  SocketHandle(const SocketHandle&) = delete;
  SocketHandle& operator=(const SocketHandle&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct AddressInfo {
  addrinfo* list = nullptr;
  ~AddressInfo() {
    if (list) ::freeaddrinfo(list);
  }
};

void resolve(const RendezvousOptions& options, int socket_type, AddressInfo& info) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  int rc = ::getaddrinfo(options.master_addr.c_str(), std::to_string(options.master_port).c_str(), &hints, &info.list);
  if (rc != 0 || !info.list)
    throw_error(ExitCode::kRendezvous, "master_addr ", options.master_addr, " cannot be resolved: ", ::gai_strerror(rc));
}

// Bound to master_addr alone: the store has no authentication, so nobody outside should reach it when the job is on one machine.
int bind_listener(const RendezvousOptions& options) {
  AddressInfo info;
  resolve(options, SOCK_STREAM, info);
  SocketHandle listener(::socket(info.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) throw_error(ExitCode::kResource, "no socket for the store: ", std::strerror(errno));
  int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), info.list->ai_addr, info.list->ai_addrlen) != 0 || ::listen(listener.get(), 1024) != 0) {
    int cause = errno;
    if (cause == EADDRINUSE)
      throw_error(ExitCode::kRendezvous, "port busy: ", address_text(options),
                  " is in use by another program; choose another master_port (0 lets the local launcher pick a free one)");
    throw_error(ExitCode::kRendezvous, "cannot listen on ", address_text(options), ": ", std::strerror(cause),
                cause == EADDRNOTAVAIL ? " (master_addr must be an address of the machine of rank 0)" : "");
  }
  return listener.release();
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw_error(ExitCode::kRendezvous, "listen_fd ", fd, " is not a listening socket: ", std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

bool is_loopback(const std::string& address) { return address.rfind("127.", 0) == 0 || address == "::1"; }

std::string first_outside_address() {
  ifaddrs* list = nullptr;
  std::string found;
  if (::getifaddrs(&list) != 0) return found;
  for (ifaddrs* entry = list; entry && found.empty(); entry = entry->ifa_next)
    if (entry->ifa_addr && entry->ifa_addr->sa_family == AF_INET && (entry->ifa_flags & IFF_UP) && !(entry->ifa_flags & IFF_LOOPBACK))
      found = numeric(entry->ifa_addr, sizeof(sockaddr_in));
  ::freeifaddrs(list);
  return found;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> connect_store(const RendezvousOptions& options) {
  quieten_torch_log();
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(options.master_port);
  store_options.timeout = options.timeout;
  store_options.waitWorkers = false;
  if (options.listen) {
    int fd = options.listen_fd >= 0 ? options.listen_fd : bind_listener(options);
    store_options.port = static_cast<uint16_t>(port_of(fd));
    store_options.isServer = true;
    store_options.masterListenFd = fd;
  }
  try {
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::TCPStore>(options.master_addr, store_options);
    if (options.key_prefix.empty()) return store;
    return c10::make_intrusive<c10d::PrefixStore>(options.key_prefix, store);
  } catch (const std::exception& e) {
    throw_error(ExitCode::kRendezvous, "rank ", options.rank, " found no store at ", address_text(options), " within ",
                options.timeout.count(), " ms: ", first_line(e));
  }
}

void wait_for_all_ranks(c10d::Store& store, const RendezvousOptions& options) {
  std::vector<std::string> keys;
  for (int64_t rank = 0; rank < options.world_size; ++rank) keys.push_back(cat("plait/arrived/", rank));
  std::string cause;
  std::vector<int64_t> missing;
  try {
    store.set(keys[static_cast<size_t>(options.rank)], std::vector<uint8_t>{1});
    store.wait(keys, options.timeout);
    return;
  } catch (const std::exception& e) {
    cause = first_line(e);
  }
  try {
    for (int64_t rank = 0; rank < options.world_size; ++rank)
      if (!store.check({keys[static_cast<size_t>(rank)]})) missing.push_back(rank);
  } catch (const std::exception&) {  // the store itself is gone
    throw_error(ExitCode::kPeerLost, "rank ", options.rank, " lost the store at ", address_text(options), ": ", cause);
  }
  throw_error(ExitCode::kRendezvous, "rank ", options.rank, " waited ", options.timeout.count(), " ms at ", address_text(options),
              missing.empty() ? cat(": ", cause) : cat("; did not come: rank ", join(missing), " of ", options.world_size));
}

std::string own_address(const RendezvousOptions& options) {
  AddressInfo info;
  resolve(options, SOCK_DGRAM, info);
  // A connected UDP socket sends nothing but knows which of our addresses leads there.
  SocketHandle probe(::socket(info.list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (probe.get() < 0 || ::connect(probe.get(), info.list->ai_addr, info.list->ai_addrlen) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw_error(ExitCode::kRendezvous, "no network path to master_addr ", options.master_addr, ": ", std::strerror(errno));
  std::string own = numeric(reinterpret_cast<sockaddr*>(&address), length);
  bool several_machines = options.local_world_size > 0 && options.local_world_size < options.world_size;
  if (several_machines && is_loopback(own)) {  // the machine of rank 0, whose own name may resolve to loopback
    std::string outside = first_outside_address();
    if (outside.empty()) throw_error(ExitCode::kRendezvous, "ranks run on several machines, but this one has only a loopback address");
    return outside;
  }
  return own;
}

}  // namespace plait::detail
