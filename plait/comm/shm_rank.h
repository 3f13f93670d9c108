// ShmRank: one rank's seat among the ranks of its machine. Every seat has a doorbell in shared memory; whoever did something that another
// rank may wait for rings it. All shared-memory groups of a rank hang on its one ShmRank, because waiting for one operation must keep the
// others going: a peer may need the rest of an earlier message before it comes to the operation waited for.
// Rank rule: the constructor is collective over all ranks of the job (it reads who shares a machine from the store).
// Thread rule: one lock for everything; a rank sleeps without it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "plait/comm/shm_loans.h"
#include "plait/comm/shm_memory.h"

namespace c10d {
class Store;
}

namespace plait::detail {

// One rank's place in the machine's shared page.
struct alignas(64) ShmSeat {
  std::atomic<uint32_t> bell{0};      // counts rings; the rank sleeps on it
  std::atomic<uint32_t> sleeping{0};  // threads of the rank that a ring must wake
  std::atomic<int32_t> pid{0};
  std::atomic<uint32_t> ended{0};  // left in good order or by an exception
  std::atomic<uint64_t> start_time{0};
};

// Something that moves on when peers did their part. Called with the rank's lock held.
class ShmProgress {
 public:
  virtual ~ShmProgress() = default;
  virtual bool progress() = 0;  // true when anything moved
  // For the message of a time-out: which ranks were the last to move, when anything is under way.
  virtual std::string behind() const { return ""; }
};

// A rank whose part is needed has died or ended: "rank 3 (process 77) has died".
class ShmPeerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ShmRank {
 public:
  // machine: ranks with the same text run on one machine.
  ShmRank(c10d::Store& store, int64_t rank, int64_t world_size, std::chrono::milliseconds timeout,
          const std::string& machine = machine_identity());
  ~ShmRank();  // peers that still wait for this rank learn that it has ended
  ShmRank(const ShmRank&) = delete;

  int64_t rank() const { return rank_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // Why the ranks of this machine share no memory although they should: what the first of them that failed says; the same on all of them.
  const std::string& problem() const { return problem_; }
  // All of `members` (global ranks) run on this rank's machine and share memory with it.
  bool shares_machine(const std::vector<int64_t>& members) const;
  // The first rank on the machine of `rank`; -1 when the ranks there share no memory. The same on all ranks.
  int64_t machine_of(int64_t rank) const { return machine_of_[static_cast<size_t>(rank)]; }

  void add(ShmProgress* group);
  void remove(ShmProgress* group);

  // Rings another rank of this machine.
  void ring(int64_t rank);
  // Runs progress() of all groups and sleeps between, until `finished` (called with the lock) says so. Throws what the process group
  // completes with rank, operation and group: ShmPeerLost when a rank of `needed` (global) has died or ended; std::runtime_error, timed out.
  void wait(const std::function<bool()>& finished, const std::vector<int64_t>& needed);
  // One round of progress; then `finished`. It may throw ShmPeerLost too.
  bool poll(const std::function<bool()>& finished);
  std::mutex& mutex() { return mutex_; }
  ShmLoans& loans() { return loans_; }
  // Memory of another rank: its own, and what it has lent. Throws ShmPeerLost; Error(kResource) when it may not be opened.
  SharedMemory attach(int64_t rank, const std::string& address, size_t size_bytes);
  char* reach(int64_t rank, const ShmLoan& loan);

 private:
  ShmSeat& seat(int64_t rank) const;
  bool progress_all();
  void sleep(uint32_t bell);
  void throw_if_lost(const std::vector<int64_t>& needed, std::vector<int64_t>& suspects);
  [[noreturn]] void throw_timed_out() const;
  template <class Open>
  auto opened(int64_t rank, const Open& open);

  int64_t rank_;
  std::chrono::milliseconds timeout_;
  std::vector<int64_t> seat_of_;     // by global rank; -1 on another machine
  std::vector<int64_t> machine_of_;  // by global rank
  SharedMemory page_;
  std::string problem_;
  std::mutex mutex_;
  std::vector<ShmProgress*> groups_;
  ShmLoans loans_;
  std::atomic<int64_t> yields_again_{0};  // from this time of the steady clock on
};

}  // namespace plait::detail
