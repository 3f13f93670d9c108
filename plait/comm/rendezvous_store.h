// The key-value store where ranks of different processes find each other: a c10d TCPStore that listens on master_addr only.
// Rank rule: exactly one process of the job has options.listen (or a foreign launcher serves the store and none has).
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "plait/comm/launch.h"

namespace c10d {
class Store;
}

namespace plait::detail {

// Serves the store when options.listen, and connects to it. Throws Error(kRendezvous): port busy, address not of this machine, no
// server within the time-out.
c10::intrusive_ptr<c10d::Store> connect_store(const RendezvousOptions& options);

// Says "I am here" and waits for all ranks. Throws Error(kRendezvous) that names those who did not come.
void wait_for_all_ranks(c10d::Store& store, const RendezvousOptions& options);

// Numeric address under which peers reach this process: that of the interface which leads to master_addr.
std::string own_address(const RendezvousOptions& options);

}  // namespace plait::detail
