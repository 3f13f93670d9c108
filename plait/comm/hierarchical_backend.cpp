#include "plait/comm/hierarchical_backend.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "plait/base/error.h"
#include "plait/comm/hierarchical_message.h"
#include "plait/tensor/parallel.h"

namespace plait::detail {

struct HierarchyTask {
  std::function<void()> run;
  std::exception_ptr error;
  std::atomic<bool> over{false};
};

namespace {

constexpr int64_t kGatheredBytes = 16 << 10;  // up to here leaders gather all sums instead of sharing the work out: one exchange, not two
constexpr std::chrono::seconds kLastWait{2};
constexpr std::chrono::milliseconds kGivenUpWait{500};

class HierarchyWork : public c10d::Work {
 public:
  HierarchyWork(std::shared_ptr<ShmRank> own, std::shared_ptr<MpiBesideShm> mpi, std::shared_ptr<HierarchyTask> task, int rank,
                c10d::OpType type)
      : c10d::Work(rank, type), own_(std::move(own)), mpi_(std::move(mpi)), task_(std::move(task)) {}
  bool isCompleted() override {
    if (mpi_) mpi_->poll();
    return own_->poll([&] { return task_->over.load(); });
  }
  bool wait(std::chrono::milliseconds) override {
    if (mpi_) mpi_->attend([&] { return task_->over.load(); });
    own_->wait([&] { return task_->over.load(); }, {});
    if (task_->error) std::rethrow_exception(task_->error);
    return true;
  }

 private:
  std::shared_ptr<ShmRank> own_;
  std::shared_ptr<MpiBesideShm> mpi_;
  std::shared_ptr<HierarchyTask> task_;
};

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

bool is_short_float(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf; }

Reduction hierarchy_reduction(const c10d::ReduceOp& op) { return reduction_of(op, "hierarchical"); }

// into = reduction over the machines of rows [machine * n, +n) of `gathered`.
void reduce_rows(Reduction reduction, const at::Tensor& gathered, int64_t rows, at::Tensor into) {
  std::vector<const void*> inputs;
  const int64_t n = into.numel();
  for (int64_t r = 0; r < rows; ++r)
    inputs.push_back(static_cast<const char*>(gathered.const_data_ptr()) + r * n * static_cast<int64_t>(into.element_size()));
  const bool known = reduce_slices(into.scalar_type(), reduction, inputs, {into.data_ptr()}, n);
  PLAIT_CHECK(known, "no reduction for type ", c10::toString(into.scalar_type()));
}

}  // namespace

std::vector<std::vector<int>> members_by_machine(const std::vector<int64_t>& members, const ShmRank& own) {
  std::vector<std::vector<int>> machines;
  std::vector<int64_t> known;
  for (size_t at = 0; at < members.size(); ++at) {
    const int64_t machine = own.machine_of(members[at]);
    const auto found = static_cast<size_t>(std::find(known.begin(), known.end(), machine) - known.begin());
    if (found == known.size()) {
      known.push_back(machine);
      machines.emplace_back();
    }
    machines[found].push_back(static_cast<int>(at));
  }
  return machines;
}

// Each function is collective over the group and returns when its result is there. Runs on the group's thread.
class HierarchicalBackend::Steps {
 public:
  Steps(HierarchyLinks links, int group_rank) : links_(std::move(links)), num_machines_(static_cast<int64_t>(links_.machines.size())) {
    for (size_t m = 0; m < links_.machines.size(); ++m) {
      const auto& there = links_.machines[m];
      largest_ = std::max(largest_, static_cast<int64_t>(there.size()));
      for (size_t at = 0; at < there.size(); ++at) {
        if (there[at] != group_rank) continue;
        machine_ = static_cast<int>(m);
        local_rank_ = static_cast<int64_t>(at);
      }
    }
  }

  void all_reduce(at::Tensor tensor, Reduction reduction) {
    const bool widen = reduction == Reduction::kSum && is_short_float(tensor);
    at::Tensor sum = widen ? tensor.to(at::kFloat) : tensor;
    inner_all_reduce(sum, reduction);
    if (is_leader() && sum.numel() > 0) exchange(sum.view({-1}), reduction);
    inner_broadcast(sum, 0);
    if (widen) tensor.copy_(sum);
  }

  void reduce_scatter(at::Tensor output, const at::Tensor& input, Reduction reduction) {
    const bool widen = reduction == Reduction::kSum && is_short_float(input);
    at::Tensor sum = input.to(widen ? at::kFloat : input.scalar_type(), false, true).view({-1});
    inner_all_reduce(sum, reduction);
    const int64_t n = output.numel();
    at::Tensor rows = at::empty({num_local() * n}, sum.options());
    if (is_leader() && n > 0) exchange_rows(sum, rows, n, reduction);
    inner_broadcast(rows, 0);
    output.copy_(rows.narrow(0, local_rank_ * n, n).view_as(output));
  }

  void all_gather(at::Tensor output, const at::Tensor& input) {
    const int64_t n = input.numel();
    if (n == 0) return;
    // With the room that the largest machine needs, so that all leaders give equally much.
    at::Tensor block = at::empty({(is_leader() ? largest_ : num_local()) * n}, input.options());
    at::Tensor own = block.narrow(0, 0, num_local() * n), flat = input.view({-1});
    if (links_.inner) links_.inner->_allgather_base(own, flat, c10d::AllgatherOptions())->wait();
    else own.copy_(flat);
    if (is_leader()) {
      at::Tensor blocks = at::empty({num_machines_ * largest_ * n}, input.options()), all = output.view({-1});
      gather_bytes(blocks, block);
      for (int64_t m = 0; m < num_machines_; ++m)
        for (size_t at = 0; at < links_.machines[static_cast<size_t>(m)].size(); ++at)
          all.narrow(0, links_.machines[static_cast<size_t>(m)][at] * n, n)
              .copy_(blocks.narrow(0, (m * largest_ + static_cast<int64_t>(at)) * n, n));
    }
    inner_broadcast(output, 0);
  }

  void broadcast(at::Tensor tensor, int root) {
    for (size_t m = 0; m < links_.machines.size(); ++m) {
      const auto& there = links_.machines[m];
      const auto found = std::find(there.begin(), there.end(), root);
      if (found == there.end()) continue;
      const bool here = static_cast<int>(m) == machine_;
      if (here) inner_broadcast(tensor, static_cast<int>(found - there.begin()));
      if (is_leader() && tensor.numel() > 0) {
        c10d::BroadcastOptions options;
        options.rootRank = static_cast<int64_t>(m);
        std::vector<at::Tensor> bytes{as_bytes(tensor)};
        links_.leaders->broadcast(bytes, options)->wait();
      }
      if (!here) inner_broadcast(tensor, 0);
    }
  }

  void barrier() {
    if (links_.inner) links_.inner->barrier(c10d::BarrierOptions())->wait();
    if (is_leader()) links_.leaders->barrier(c10d::BarrierOptions())->wait();
    if (links_.inner) links_.inner->barrier(c10d::BarrierOptions())->wait();
  }

 private:
  bool is_leader() const { return links_.leaders.defined(); }
  int64_t num_local() const { return static_cast<int64_t>(links_.machines[static_cast<size_t>(machine_)].size()); }

  void inner_all_reduce(const at::Tensor& tensor, Reduction reduction) {
    if (!links_.inner) return;
    c10d::AllreduceOptions options;
    options.reduceOp = reduction == Reduction::kSum   ? c10d::ReduceOp::SUM
                       : reduction == Reduction::kMax ? c10d::ReduceOp::MAX
                                                      : c10d::ReduceOp::MIN;
    std::vector<at::Tensor> tensors{tensor};
    links_.inner->allreduce(tensors, options)->wait();
  }

  void inner_broadcast(const at::Tensor& tensor, int root) {
    if (!links_.inner) return;
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors{tensor};
    links_.inner->broadcast(tensors, options)->wait();
  }

  void gather_bytes(const at::Tensor& output, const at::Tensor& input) {
    at::Tensor to = as_bytes(output), from = as_bytes(input);
    links_.leaders->_allgather_base(to, from, c10d::AllgatherOptions())->wait();
  }

  // Leaders: sum = its reduction over the machines, in their order.
  void exchange(at::Tensor sum, Reduction reduction) {
    const int64_t n = sum.numel();
    if (static_cast<int64_t>(sum.nbytes()) <= kGatheredBytes) {
      at::Tensor gathered = at::empty({num_machines_ * n}, sum.options());
      gather_bytes(gathered, sum);
      reduce_rows(reduction, gathered, num_machines_, sum);
      return;
    }
    const int64_t part = (n + num_machines_ - 1) / num_machines_;
    at::Tensor padded = sum;
    if (part * num_machines_ != n) {
      padded = at::zeros({part * num_machines_}, sum.options());
      padded.narrow(0, 0, n).copy_(sum);
    }
    at::Tensor parts = at::empty_like(padded), own = at::empty({part}, sum.options());
    at::Tensor to = as_bytes(parts), from = as_bytes(padded);
    std::vector<int64_t> even;
    links_.leaders->alltoall_base(to, from, even, even)->wait();
    reduce_rows(reduction, parts, num_machines_, own);
    gather_bytes(padded, own);
    if (!padded.is_same(sum)) sum.copy_(padded.narrow(0, 0, n));
  }

  // Leaders: rows = the reduction over the machines of the rows (n elements each) that this machine's members get.
  void exchange_rows(const at::Tensor& sum, at::Tensor rows, int64_t n, Reduction reduction) {
    at::Tensor packed = at::empty_like(sum), received = at::empty({num_machines_ * rows.numel()}, sum.options());
    std::vector<int64_t> given, got;
    const auto element_size = static_cast<int64_t>(sum.element_size());
    int64_t at = 0;
    for (const auto& there : links_.machines) {
      for (int member : there) packed.narrow(0, n * at++, n).copy_(sum.narrow(0, member * n, n));
      given.push_back(static_cast<int64_t>(there.size()) * n * element_size);
      got.push_back(rows.numel() * element_size);
    }
    at::Tensor to = as_bytes(received), from = as_bytes(packed);
    links_.leaders->alltoall_base(to, from, got, given)->wait();
    reduce_rows(reduction, received, num_machines_, rows);
  }

  HierarchyLinks links_;
  int64_t num_machines_, largest_ = 0, local_rank_ = 0;
  int machine_ = 0;
};

// Shared with its thread, which may outlive the backend by the operation that it cannot leave.
class HierarchicalBackend::Queue {
 public:
  Queue(std::shared_ptr<ShmRank> own, HierarchyLinks links, int group_rank) : own_(std::move(own)), steps_(std::move(links), group_rank) {}

  static std::shared_ptr<Queue> begin(std::shared_ptr<ShmRank> own, HierarchyLinks links, int group_rank) {
    auto queue = std::make_shared<Queue>(std::move(own), std::move(links), group_rank);
    queue->thread_ = std::thread([queue] { queue->run(); });
    return queue;
  }

  void add(std::shared_ptr<HierarchyTask> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

  // mpi: where the operation under way may wait for it, null where not.
  void end(MpiBesideShm* mpi) {
    std::unique_lock<std::mutex> lock(mutex_);
    ending_ = true;
    tasks_.clear();
    changed_.notify_all();
    bool ended = changed_.wait_for(lock, kLastWait, [&] { return ended_; });
    if (!ended && mpi) {  // no thread may poll MPI while the process takes it down
      mpi->give_up();
      ended = changed_.wait_for(lock, kGivenUpWait, [&] { return ended_; });
    }
    lock.unlock();
    // Joined, so that the connections end on the caller's thread, before the process takes its libraries down.
    if (ended) thread_.join();
    else thread_.detach();
  }

  Steps& steps() { return steps_; }

 private:
  void run() {
    use_one_thread();
    at::NoGradGuard no_grad;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
      if (ending_) break;
      auto task = tasks_.front();
      tasks_.pop_front();
      lock.unlock();
      try {
        // After a failure the members no longer agree on what comes next.
        if (failure_) std::rethrow_exception(failure_);
        task->run();
      } catch (...) {
        task->error = failure_ = std::current_exception();
      }
      task->run = nullptr;  // a finished operation holds no memory
      task->over.store(true);
      own_->ring(own_->rank());
      task.reset();
      lock.lock();
    }
    ended_ = true;
    changed_.notify_all();
  }

  std::shared_ptr<ShmRank> own_;
  Steps steps_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<HierarchyTask>> tasks_;
  std::exception_ptr failure_;
  bool ending_ = false, ended_ = false;
  std::thread thread_;
};

HierarchicalBackend::HierarchicalBackend(std::shared_ptr<ShmRank> own, HierarchyLinks links, int group_rank, int size)
    : c10d::Backend(group_rank, size), own_(own), mpi_(links.mpi), inner_(links.inner), all_(links.all) {
  for (const auto& there : links.machines)
    if (std::find(there.begin(), there.end(), group_rank) != there.end()) local_ = there;
  queue_ = Queue::begin(std::move(own), std::move(links), group_rank);
}

HierarchicalBackend::~HierarchicalBackend() { queue_->end(mpi_.get()); }

int HierarchicalBackend::local_rank(int group_rank) const {
  const auto found = std::find(local_.begin(), local_.end(), group_rank);
  return found == local_.end() ? -1 : static_cast<int>(found - local_.begin());
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::start(std::function<void(Steps&)> collective, c10d::OpType type) {
  auto task = std::make_shared<HierarchyTask>();
  task->run = [&steps = queue_->steps(), collective = std::move(collective)] { collective(steps); };
  queue_->add(task);
  return c10::make_intrusive<HierarchyWork>(own_, mpi_, task, rank_, type);
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  return start([tensor = tensors.at(0), reduction = hierarchy_reduction(options.reduceOp)](Steps& s) { s.all_reduce(tensor, reduction); },
               c10d::OpType::ALLREDUCE);
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) {
  PLAIT_CHECK(output.numel() == input.numel() * size_ && output.scalar_type() == input.scalar_type(), "all_gather of ", input.numel(),
              " elements from ", size_, " ranks into ", output.numel());
  return start([output, input](Steps& s) { s.all_gather(output, input); }, c10d::OpType::_ALLGATHER_BASE);
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                         const c10d::ReduceScatterOptions& options) {
  PLAIT_CHECK(input.numel() == output.numel() * size_ && output.scalar_type() == input.scalar_type(), "reduce_scatter of ", input.numel(),
              " elements over ", size_, " ranks into ", output.numel());
  return start([output, input, reduction = hierarchy_reduction(options.reduceOp)](Steps& s) { s.reduce_scatter(output, input, reduction); },
               c10d::OpType::_REDUCE_SCATTER_BASE);
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  PLAIT_CHECK(options.rootRank >= 0 && options.rootRank < size_, "broadcast from group rank ", options.rootRank, " of ", size_);
  return start([tensor = tensors.at(0), root = static_cast<int>(options.rootRank)](Steps& s) { s.broadcast(tensor, root); },
               c10d::OpType::BROADCAST);
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::barrier(const c10d::BarrierOptions&) {
  return start([](Steps& s) { s.barrier(); }, c10d::OpType::BARRIER);
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  if (const int local = local_rank(destination); local >= 0)
    return message_inside(mpi_, inner_->send(tensors, local, tag), rank_, c10d::OpType::SEND);
  return message_across(own_, mpi_, all_->send(tensors, destination, tag), rank_, c10d::OpType::SEND);
}

c10::intrusive_ptr<c10d::Work> HierarchicalBackend::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  if (const int local = local_rank(source); local >= 0)
    return message_inside(mpi_, inner_->recv(tensors, local, tag), rank_, c10d::OpType::RECV);
  return message_across(own_, mpi_, all_->recv(tensors, source, tag), rank_, c10d::OpType::RECV);
}

}  // namespace plait::detail
