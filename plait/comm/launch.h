// How a rank gets its Mesh: from c10d stores and backends. The only public way into communication.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/comm/mesh.h"

namespace plait {

struct RendezvousOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  bool foreign_store = false;  // a launcher's own TCPStore stands there: client only, its protocol
  bool listen = false;         // this process serves the rendezvous (rank 0 without a foreign store)
  int listen_fd = -1;          // inherited bound socket for it; -1 = bind `bind`, else master_addr
  std::string bind;            // address to listen on; empty = master_addr
  std::string job_id;          // checked in the first message
  std::string secret;          // HMAC key of the job; empty = no proof asked for (one warning)
  std::string config_text;     // resolved settings, the same on all ranks or the first difference is named; empty = not checked
  std::chrono::milliseconds rendezvous_timeout{600000};  // until all ranks are here
  std::chrono::milliseconds timeout{600000};             // of a collective
  // gloo | nccl | mpi (ranks of an MPI launcher; groups over several machines: shm inside each of them) | shm (ranks of each group on one
  // machine) | auto (shm where that holds, for groups over several machines inside each of them and gloo between; else gloo).
  std::string backend = "gloo";
  int64_t local_world_size = 0;            // ranks on this machine; 0 = all of them
  std::vector<std::string> urgent_groups;  // groups (data, tensor) whose device streams go before the computation's: style p2p
  std::string machine;                     // ranks with the same text share a machine and its memory; empty = found out
  std::string key_prefix;                  // before every key: set it when a foreign launcher's store outlives a restart ("attempt_2")
};

// Connects, makes the groups of `layout` (world, data, pipeline, tensor) and runs the self-test. Collective over all ranks.
// Errors: kRendezvous (port busy: names it; peers that never come: names who is missing), kPeerLost. World of 1: no socket at all.
std::unique_ptr<Mesh> connect_mesh(const MeshLayout& layout, const RendezvousOptions& options);

// Instead of connect_mesh, of rank 0 that cannot take part: tells the ranks that come within the next seconds why, so that they end with the
// same code and do not wait for it. Nothing on other ranks, and where a launcher's own store stands.
void tell_failure(const RendezvousOptions& options, const Error& failure);

// Small check of the collectives on every group; on a wrong result or a time-out the message names the group and the pair of ranks.
void self_test(const Mesh& mesh);

// Runs `body` as layout.world_size() threads of this process, each with its own Mesh over an in-process backend, and returns when all
// ended. The first exception of any rank is rethrown here; the others are woken out of their collectives with kPeerLost.
// Every rank thread runs with one intra-op thread. A rank that waits longer than `timeout` for the others throws kHang.
void run_thread_ranks(const MeshLayout& layout, const std::function<void(Mesh&)>& body,
                      std::chrono::milliseconds timeout = std::chrono::milliseconds(300000));

}  // namespace plait
