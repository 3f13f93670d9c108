#include "plait/elastic/master_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "plait/base/error.h"

namespace plait {

namespace {

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

std::string plain_address(const std::string& address) {
  return address.size() > 2 && address.front() == '[' && address.back() == ']' ? address.substr(1, address.size() - 2) : address;
}

std::string endpoint_text(const std::string& address, int port) {
  std::string plain = plain_address(address);
  return plain.find(':') == std::string::npos ? cat(plain, ":", port) : cat("[", plain, "]:", port);
}

MasterSocket bind_master_socket(const std::string& address, int port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const std::string where = endpoint_text(address, port);
  if (int rc = ::getaddrinfo(plain_address(address).c_str(), cat(port).c_str(), &hints, &list); rc != 0)
    throw_error(
        ExitCode::kRendezvous, "cannot listen on ", where, ": ", ::gai_strerror(rc),
        "; master_addr (--master_addr, --rdzv_endpoint or MASTER_ADDR; --bind where it is given) must be an address of this machine or "
        "a name that it can resolve");
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  int cause = EADDRNOTAVAIL;
  for (const addrinfo* one = list; one; one = one->ai_next) {
    MasterSocket socket{FileDescriptor(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)), port};
    int yes = 1;
    if (socket.fd.is_open()) ::setsockopt(socket.fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!socket.fd.is_open() || ::bind(socket.fd.get(), one->ai_addr, one->ai_addrlen) != 0) {
      cause = errno;
      continue;
    }
    socket.port = port_of(socket.fd.get());
    return socket;
  }
  throw_error(ExitCode::kRendezvous, "cannot listen on ", where, ": ", std::strerror(cause),
              cause == EADDRINUSE      ? "; another master_port is needed (one node: 0 takes any free port)"
              : cause == EADDRNOTAVAIL ? "; it must be an address of this machine, node 0, or give the one to listen on with --bind"
                                       : "");
}

}  // namespace plait
