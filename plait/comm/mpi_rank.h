// MpiRank: this process's part in MPI: the plugin loaded, MPI started and ended, and the waiting. All MPI groups of a rank hang on it,
// because waiting for one operation must keep the others going: a peer may need the next step of an earlier one first.
// Rank rule: the constructor is collective over all ranks of the job, which are the launcher's ranks by the same numbers.
// Thread rule: any thread may call; one lock around every call of MPI (MPI_THREAD_SERIALIZED), and a rank rests without it. Lock rule: who
// holds it may take ShmRank's (MpiBesideShm), never the other way round.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plait/comm/mpi_plugin.h"

namespace c10d {
class Store;
}

namespace plait::detail {

// A mutex that is had in the order of asking: a thread that polls asks again at once, and would keep the others out of a std::mutex.
class TurnMutex {
 public:
  void lock() {
    const uint32_t turn = asked_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t now = served_.load(std::memory_order_acquire); now != turn; now = served_.load(std::memory_order_acquire))
      served_.wait(now, std::memory_order_acquire);
  }
  void unlock() {
    served_.fetch_add(1, std::memory_order_release);
    served_.notify_all();
  }

 private:
  std::atomic<uint32_t> asked_{0}, served_{0};
};

// Operations of one group that move on when peers did their part. Called with the rank's lock held.
class MpiProgress {
 public:
  virtual ~MpiProgress() = default;
  virtual bool progress() = 0;    // true when anything moved
  virtual bool idle() const = 0;  // nothing is under way that would stand still unless somebody waits
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

  // Collective over `members` (global ranks); tag: the same on all of them.
  MpiGroup* make_group(const std::vector<int64_t>& members, int tag);

  void add(MpiProgress* group);
  void remove(MpiProgress* group);

  // Moves all groups on and rests between, until `finished` (called with the lock) says so; the lock is free after each round. Throws
  // std::runtime_error, which the process group completes with rank, operation and group: a rank is lost; timed out.
  void wait(const std::function<bool()>& finished);
  // One round of progress; then `finished`.
  bool poll(const std::function<bool()>& finished);
  // All groups are. With the lock.
  bool idle() const;
  // For a rank that failed: those of its threads that still wait throw std::runtime_error, and it does not end MPI with the others.
  void give_up() { given_up_ = true; }
  TurnMutex& mutex() { return mutex_; }

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
  std::chrono::nanoseconds usual_call_{1000000};
  std::atomic<bool> given_up_{false};
  TurnMutex mutex_;
  std::vector<MpiProgress*> groups_;
};

}  // namespace plait::detail
