// How the ranks of different processes find each other, and the key-value store they then share: plait's own rendezvous, which rank 0
// serves, or the c10d TCPStore of a foreign launcher. Either way nobody gets a store before all ranks have come and fit together.
// Rank rule: exactly one process of the job has options.listen (or a foreign launcher serves the store and none has).
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "plait/comm/launch.h"
#include "plait/rendezvous/hello.h"

namespace c10d {
class Store;
}

namespace plait::detail {

struct Joined {
  c10::intrusive_ptr<c10d::Store> store;
  std::string address;  // numeric: under which peers reach this process
};

// Serves, connects, and waits for all ranks; collective. Throws Error(kRendezvous): port busy, address not of this machine, nobody there,
// ranks that did not come or contradict each other; Error(kAuth): a secret that is wrong or missing; Error(kPeerLost).
Joined join_job(const RendezvousOptions& options);

// The same over a launcher's TCPStore (options.foreign_store).
Joined join_foreign_job(const RendezvousOptions& options);

// What this rank says about itself.
rendezvous::Hello hello_of(const RendezvousOptions& options);

// One warning of rank 0 when the job has no secret.
void warn_without_secret(const RendezvousOptions& options);

}  // namespace plait::detail
