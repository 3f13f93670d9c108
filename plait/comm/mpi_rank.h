// MpiRank: this process's part in MPI: the plugin loaded, MPI started and ended, and the waiting. All MPI groups of a rank hang on it,
// because waiting for one operation must keep the others going: a peer may need the next step of an earlier one first.
// Rank rule: the constructor is collective over all ranks of the job, which are the launcher's ranks by the same numbers.
// Thread rule: one lock around every call of MPI (MPI_THREAD_SERIALIZED); a rank rests without it.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "plait/comm/mpi_plugin.h"

namespace c10d {
class Store;
}

namespace plait::detail {

// Operations of one group that move on when peers did their part. Called with the rank's lock held; does not throw.
class MpiProgress {
 public:
  virtual ~MpiProgress() = default;
  virtual bool progress() = 0;  // true when anything moved
};

class MpiRank {
 public:
  // local_world_size: ranks on this machine, which share its cores. timeout: of an operation. Throws Error(kUsage): no MPI launcher, or one
  // that started other ranks than these; Error(kResource): no plugin, or no MPI on some rank, the same text on all of them.
  MpiRank(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world_size, int64_t local_world_size,
          std::chrono::milliseconds timeout);
  // Ends MPI together with all other ranks; where one has failed, or while an exception is under way, the launcher does it.
  ~MpiRank();
  MpiRank(const MpiRank&) = delete;

  const MpiPlugin& mpi() const { return *mpi_; }
  std::string library() const { return mpi_->library(); }

  // Collective over `members` (global ranks).
  MpiGroup* make_group(const std::vector<int64_t>& members);

  void add(MpiProgress* group);
  void remove(MpiProgress* group);

  // Moves all groups on and rests between, until `finished` (called with the lock) says so. Throws std::runtime_error, which the process
  // group completes with rank, operation and group: a rank is lost; timed out.
  void wait(const std::function<bool()>& finished);
  // One round of progress; then `finished`.
  bool poll(const std::function<bool()>& finished);
  std::mutex& mutex() { return mutex_; }

 private:
  void agree_to_start();
  bool progress_all();
  void rest(int64_t idle_rounds) const;
  bool copied_something(std::chrono::nanoseconds call);
  std::string lost_rank();

  c10::intrusive_ptr<c10d::Store> store_;
  int64_t rank_, world_size_;
  std::chrono::milliseconds timeout_;
  bool crowded_;  // more ranks than cores
  int exceptions_;
  const MpiPlugin* mpi_ = nullptr;
  int next_group_tag_ = 0;
  std::chrono::nanoseconds shortest_call_{1000000};
  std::mutex mutex_;
  std::vector<MpiProgress*> groups_;
};

}  // namespace plait::detail
