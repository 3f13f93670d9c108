#include "plait/comm/mpi_beside_shm.h"

#include <mutex>

namespace plait::detail {

MpiBesideShm::MpiBesideShm(std::shared_ptr<MpiRank> mpi, std::shared_ptr<ShmRank> shm) : mpi_(std::move(mpi)), shm_(std::move(shm)) {
  mpi_->add(this);
}

MpiBesideShm::~MpiBesideShm() { mpi_->remove(this); }

bool MpiBesideShm::progress() {
  shm_->poll([] { return true; });
  return false;  // shared memory does not say; MpiRank tells it by the time
}

void MpiBesideShm::attend(const std::function<bool()>& finished) {
  {
    std::lock_guard lock(mpi_->mutex());
    if (mpi_->idle()) return;
  }
  mpi_->wait([&] { return finished() || mpi_->idle(); });
}

void MpiBesideShm::poll() {
  mpi_->poll([] { return true; });
}

}  // namespace plait::detail
