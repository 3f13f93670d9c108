#include "plait/rendezvous/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "plait/base/error.h"
#include "plait/rendezvous/client.h"

namespace plait::rendezvous {

namespace {

constexpr int kBacklog = 1024;

// Every address of this machine that is up, numeric.
std::vector<SocketAddress> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
  std::vector<SocketAddress> found;
  for (ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
    SocketAddress address;
    if (entry->ifa_addr->sa_family == AF_INET) address.length = sizeof(sockaddr_in);
    else if (entry->ifa_addr->sa_family == AF_INET6) address.length = sizeof(sockaddr_in6);
    else continue;
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    found.push_back(address);
  }
  return found;
}

std::string machine_text() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  std::vector<std::string> numbers;
  for (const auto& address : own_addresses()) {
    if (!address.is_loopback() && numbers.size() < 8) numbers.push_back(address.host());
  }
  return cat("this machine is ", host, numbers.empty() ? ", with loopback addresses only" : ", with the addresses ", join(numbers));
}

// `setting` is named when it stays unknown.
std::vector<SocketAddress> resolve_patiently(const char* setting, const std::string& host, int port) {
  for (int attempt = 0;; ++attempt) {
    try {
      return resolve(host, port);
    } catch (const Error& e) {
      if (attempt == 5) throw_error(e.code(), setting, " ", host, " names no machine: ", e.what());
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
}

// 0 or the errno. An IPv6 socket takes IPv6 only, so that it does not collide with the IPv4 one of the same name.
int try_listen(const SocketAddress& address, FileDescriptor& out) {
  FileDescriptor fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return errno;
  int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.storage.ss_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), kBacklog) != 0) return errno;
  out = std::move(fd);
  return 0;
}

[[noreturn]] void port_busy(const std::string& host, int port) {
  std::string who = whose_job(host, port, std::chrono::milliseconds(2000));
  throw_error(ExitCode::kRendezvous, "port busy: ", address_text(host, port), " is in use by ",
              who.empty() ? "another program" : "another job", who.empty() ? "" : cat(" (", who, ")"),
              "; choose another master_port (0 lets the local launcher pick a free one)");
}

Listening take_over(const ListenOptions& options) {
  Listening listening;
  listening.sockets.emplace_back(options.fd);
  ::fcntl(options.fd, F_SETFL, ::fcntl(options.fd, F_GETFL) | O_NONBLOCK);
  ::fcntl(options.fd, F_SETFD, FD_CLOEXEC);
  if (::listen(options.fd, kBacklog) != 0)
    throw_error(ExitCode::kRendezvous, "listen_fd ", options.fd, " is not a bound socket: ", std::strerror(errno));
  listening.address = address_text(options.master_addr, local_address(options.fd).port());
  return listening;
}

}  // namespace

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(get(), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

int SocketAddress::port() const {
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  return 0;
}

std::string SocketAddress::text() const { return address_text(host(), port()); }

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
  if (storage.ss_family != AF_INET6) return false;
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

bool SocketAddress::is_any() const {
  if (storage.ss_family == AF_INET) return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr == INADDR_ANY;
  return storage.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
}

bool is_loopback_host(std::string_view host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::string bare_host(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

std::string address_text(const std::string& host, int port) {
  std::string bare = bare_host(host);
  return bare.find(':') == std::string::npos ? cat(bare, ":", port) : cat("[", bare, "]:", port);
}

std::vector<SocketAddress> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  int rc = ::getaddrinfo(bare_host(host).c_str(), std::to_string(port).c_str(), &hints, &list);
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
  std::vector<SocketAddress> found;
  for (addrinfo* entry = rc == 0 ? list : nullptr; entry; entry = entry->ai_next) {
    SocketAddress address;
    if (entry->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    found.push_back(address);
  }
  if (found.empty()) throw_error(ExitCode::kRendezvous, "the address ", host, " cannot be resolved: ", ::gai_strerror(rc));
  return found;
}

SocketAddress local_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) address.length = 0;
  return address;
}

SocketAddress peer_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) address.length = 0;
  return address;
}

std::string first_outside_address() {
  std::string ipv6;
  for (const auto& address : own_addresses()) {
    if (address.is_loopback()) continue;
    if (address.storage.ss_family == AF_INET) return address.host();
    const auto& number = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
    if (ipv6.empty() && !IN6_IS_ADDR_LINKLOCAL(&number)) ipv6 = address.host();
  }
  return ipv6;
}

Listening listen_on(const ListenOptions& options) {
  if (options.fd >= 0) return take_over(options);
  const std::string& host = options.bind.empty() ? options.master_addr : options.bind;
  const char* setting = options.bind.empty() ? "master_addr" : "bind address";
  Listening listening;
  auto addresses = resolve_patiently(setting, host, options.port);
  bool all_loopback = true;
  for (const auto& address : addresses) all_loopback = all_loopback && address.is_loopback();
  if (options.bind.empty() && options.several_machines && all_loopback) {
    // The machine's own name often stands for loopback in its own /etc/hosts, while the others know its real address.
    listening.note = cat("master_addr ", host,
                         " is a loopback address on this machine, which other machines cannot reach: listening on all "
                         "its addresses; --bind (PLAIT_BIND) chooses one");
    addresses = resolve("0.0.0.0", options.port);
    for (auto& address : resolve("::", options.port)) addresses.push_back(address);
  }
  int cause = 0;
  for (const auto& address : addresses) {
    FileDescriptor fd;
    int error = try_listen(address, fd);
    if (error == EADDRINUSE) port_busy(address.is_any() ? options.master_addr : address.host(), options.port);
    if (error == 0) listening.sockets.push_back(std::move(fd));
    else if (cause == 0) cause = error;
  }
  std::string numbers =
      addresses[0].host() == bare_host(host) ? "" : cat(" (", addresses[0].host(), addresses.size() > 1 ? ", ..." : "", ")");
  if (listening.sockets.empty() && cause == EADDRNOTAVAIL)
    throw_error(ExitCode::kRendezvous, "cannot listen on ", address_text(host, options.port), ": ", setting, " ", host, numbers,
                " is not an address of the machine of rank 0 (", machine_text(), ")");
  if (listening.sockets.empty())
    throw_error(ExitCode::kRendezvous, "cannot listen on ", address_text(host, options.port), ": ", std::strerror(cause));
  listening.address = address_text(options.master_addr, options.port);
  return listening;
}

}  // namespace plait::rendezvous
