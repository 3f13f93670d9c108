// ProcessGroup over any c10d Backend (Gloo, NCCL, MPI, shared memory, in-process threads). Turns what a backend throws into Error(kPeerLost)
// or Error(kHang) that names group, rank, coordinate and operation; an Error of its own passes. A group of one rank has no backend: its
// operations are copies.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <vector>

#include "plait/comm/process_group.h"

namespace c10d {
class Backend;
}

namespace plait::detail {

// backend: of members.size() ranks, this one being group rank `rank`; null exactly when there is one member.
// where: "rank 3 (dp 0, pp 1, tp 1)", for messages. device: where its tensors lie.
ProcessGroupPtr make_backend_group(c10::intrusive_ptr<c10d::Backend> backend, std::string name, std::vector<int64_t> members, int64_t rank,
                                   std::string where, at::Device device);

}  // namespace plait::detail
