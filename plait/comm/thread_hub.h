// ThreadWorld and ThreadHub: where ranks that are threads of one process meet. A hub serves one process group; the ranks read each
// other's tensors directly. Collectives are matched by their sequence number in the group, messages first-in first-out per
// (source, destination, tag). Nobody spins: a rank sleeps until the others came, then every waiting rank computes slices.
// Thread rule: all functions are thread safe; one rank calls from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "plait/comm/reduce_kernels.h"

namespace plait::detail {

class ThreadHub;

// What all hubs of a run share: who failed first and who has ended.
class ThreadWorld {
 public:
  explicit ThreadWorld(int64_t size) : ended_(static_cast<size_t>(size)) {}
  // Hubs are added before any rank runs.
  void add(std::shared_ptr<ThreadHub> hub) { hubs_.push_back(std::move(hub)); }
  // Rank `rank` threw. Only the first call counts; every sleeping rank wakes with kPeerLost that names it.
  void fail(int64_t rank, const std::string& message);
  // Rank `rank` returned: whoever still waits for it wakes with an error instead of sleeping for ever.
  void end(int64_t rank);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  bool ended(int64_t rank) const { return ended_[static_cast<size_t>(rank)].load(std::memory_order_acquire); }
  std::string failure() const;

 private:
  void wake_all();
  std::vector<std::shared_ptr<ThreadHub>> hubs_;
  std::vector<std::atomic<bool>> ended_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::string failure_;
};

enum class CollectiveKind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier };

// What one rank asks for; must agree on all members but for the tensors' contents.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Reduction reduction = Reduction::kSum;
  int64_t root = 0;
  at::Tensor input, output;  // broadcast and all-reduce: the same tensor twice
};

// One matched operation. Fields are guarded by the hub's mutex, except the tensors, which are fixed once all arrived.
struct HubCollective {
  CollectiveCall first;  // the call of the first rank that came
  int first_rank = 0;
  uint64_t sequence = 0;
  std::vector<at::Tensor> inputs, outputs;
  std::vector<bool> here;
  int arrived = 0;
  int64_t elements = 0, num_chunks = 0, next_chunk = 0, chunks_done = 0;
  bool complete = false;
  std::string broken;  // why it can never complete (calls that differ)
};

// One half of a message.
struct HubMessage {
  int source = 0, destination = 0, tag = 0;
  bool is_send = false;
  at::Tensor tensor;
  bool complete = false;
  std::string broken;
};

class ThreadHub {
 public:
  // members: global ranks by group rank.
  ThreadHub(ThreadWorld* world, std::string name, std::vector<int64_t> members, std::chrono::milliseconds timeout);

  int size() const { return static_cast<int>(members_.size()); }
  const std::string& name() const { return name_; }

  // Enters operation `sequence` of the group. Never blocks. Throws kBug when the calls of two ranks differ, kPeerLost after a failure.
  std::shared_ptr<HubCollective> enter(int rank, uint64_t sequence, CollectiveCall call);
  // Posts a send or a receive. Never blocks; whoever comes second copies.
  std::shared_ptr<HubMessage> post(HubMessage message);

  // Sleeps until done (and helps to compute). `rank` is the caller, for messages. Throws kPeerLost, kHang or kBug.
  void wait(HubCollective& collective, int rank);
  void wait(HubMessage& message);
  bool poll(HubCollective& collective);
  bool poll(HubMessage& message);

  void wake();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Channel = std::tuple<int, int, int>;
  void run_chunks(HubCollective& collective, Lock& lock);
  template <class Operation>
  void throw_if_lost(const Operation& operation) const;
  std::string describe(const HubCollective& collective) const;
  std::string describe(const HubMessage& message) const;
  std::string group_text() const;

  ThreadWorld* world_;
  std::string name_;
  std::vector<int64_t> members_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::shared_ptr<HubCollective>> open_;
  std::map<Channel, std::deque<std::shared_ptr<HubMessage>>> posts_;  // one kind only in a queue: the unmatched ones
};

}  // namespace plait::detail
