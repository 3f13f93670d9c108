// Messages of a rank that has some through shared memory and some between machines (Gloo or MPI). Who waits for the one keeps the other going:
// a peer may need the rest of an earlier message before it comes to the one waited for.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>

#include "plait/comm/mpi_beside_shm.h"
#include "plait/comm/shm_rank.h"

namespace plait::detail {

// `message` through shared memory. mpi null: as it is; Gloo goes on by itself.
c10::intrusive_ptr<c10d::Work> message_inside(std::shared_ptr<MpiBesideShm> mpi, c10::intrusive_ptr<c10d::Work> message, int rank,
                                              c10d::OpType type);

// `message` between machines. mpi given: as it is; its waits do it. Else a wait blocks in Gloo, and a thread of its own keeps shared memory
// going meanwhile: little beside a message over a network.
c10::intrusive_ptr<c10d::Work> message_across(std::shared_ptr<ShmRank> own, std::shared_ptr<MpiBesideShm> mpi,
                                              c10::intrusive_ptr<c10d::Work> message, int rank, c10d::OpType type);

}  // namespace plait::detail
