// Addresses of the rendezvous: IPv4, IPv6 with and without brackets, host names with several addresses.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "plait/base/file_descriptor.h"

namespace plait::rendezvous {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string host() const;  // numeric
  int port() const;
  std::string text() const;  // "127.0.0.1:29500", "[::1]:29500"
  bool is_loopback() const;
  bool is_any() const;  // 0.0.0.0, ::
};

// localhost, 127.x.y.z or ::1 as text; no name is looked up.
bool is_loopback_host(std::string_view host);
// Without the brackets of "[::1]".
std::string bare_host(const std::string& host);
// "host:29500", "[::1]:29500"
std::string address_text(const std::string& host, int port);

// All TCP addresses of a name or number, in the system's order. Error(kRendezvous) when there are none.
std::vector<SocketAddress> resolve(const std::string& host, int port);

SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

// A usable address of this machine other than loopback, numeric, IPv4 before IPv6; "" when there is none.
std::string first_outside_address();

struct ListenOptions {
  std::string master_addr = "127.0.0.1";
  int port = 0;
  int fd = -1;                    // a bound socket, which is taken over; -1 = none
  std::string bind;               // address to listen on; empty = master_addr
  bool several_machines = false;  // a master_addr that is loopback here is then no use for the others
};

struct Listening {
  std::vector<FileDescriptor> sockets;  // non-blocking
  std::string address;                  // for messages
  std::string note;                     // a line worth saying, or ""
};

// Listens on the addresses of `bind` or master_addr that are of this machine. Error(kRendezvous): port busy, address not of this machine,
// name unknown (asked for some seconds: the name of a just started container may come late).
Listening listen_on(const ListenOptions& options);

}  // namespace plait::rendezvous
