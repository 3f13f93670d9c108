// The socket of the rendezvous, bound by the launcher before any rank exists and inherited by rank 0, so that nobody can take the port in
// between. It is bound, not listening: until rank 0 listens, a connection is refused instead of waiting for nobody.
#pragma once

#include <string>

#include "plait/base/file_descriptor.h"

namespace plait {

struct MasterSocket {
  FileDescriptor fd;
  int port = 0;
};

// `address`: an IPv4 or IPv6 address (brackets allowed) or a host name, whose addresses are tried in order. `port` 0 = any free one.
// Throws Error(kRendezvous): the port is in use, the address is not of this machine or cannot be resolved.
MasterSocket bind_master_socket(const std::string& address, int port);

// "node7:29500", "[::1]:29500"
std::string endpoint_text(const std::string& address, int port);

// The address without the brackets of an IPv6 one.
std::string plain_address(const std::string& address);

}  // namespace plait
