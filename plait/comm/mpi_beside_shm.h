// MpiBesideShm: of a rank that has groups over MPI and groups over shared memory. Whoever waits for something of the one must keep the other
// going too, because a peer may need the rest of an earlier message first. A wait for MPI (MpiRank::wait) does it as long as this object
// lives; before a wait for shared memory, where a rank sleeps and MPI would stand still, attend() does.
// Thread rule: any thread may call anything.
#pragma once

#include <functional>
#include <memory>

#include "plait/comm/mpi_rank.h"
#include "plait/comm/shm_rank.h"

namespace plait::detail {

class MpiBesideShm : private MpiProgress {
 public:
  MpiBesideShm(std::shared_ptr<MpiRank> mpi, std::shared_ptr<ShmRank> shm);
  ~MpiBesideShm() override;
  MpiBesideShm(const MpiBesideShm&) = delete;

  // Returns when `finished`, which takes no lock but ShmRank's, says so, or when MPI has nothing under way that waits for this rank.
  // Throws as MpiRank::wait.
  void attend(const std::function<bool()>& finished);
  // One round of progress.
  void poll();
  void give_up() { mpi_->give_up(); }

 private:
  bool progress() override;
  bool idle() const override { return true; }

  std::shared_ptr<MpiRank> mpi_;
  std::shared_ptr<ShmRank> shm_;
};

}  // namespace plait::detail
