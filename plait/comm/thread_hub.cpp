#include "plait/comm/thread_hub.h"

#include <algorithm>
#include <cstring>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

constexpr int64_t kChunkElements = 32768;

const char* kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kReduceScatter: return "reduce_scatter";
    case CollectiveKind::kBroadcast: return "broadcast";
    case CollectiveKind::kBarrier: return "barrier";
  }
  return "?";
}

std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "";
  return cat(" [", join(tensor.sizes()), "] ", c10::toString(tensor.scalar_type()));
}

std::string call_text(const CollectiveCall& call) {
  std::string text = kind_name(call.kind);
  if (call.kind == CollectiveKind::kAllReduce && call.reduction != Reduction::kSum)
    text += call.reduction == Reduction::kMax ? " max" : " min";
  if (call.kind == CollectiveKind::kBroadcast) text += cat(" from ", call.root);
  return text + tensor_text(call.input);
}

bool same_call(const CollectiveCall& a, const CollectiveCall& b) {
  if (a.kind != b.kind || a.reduction != b.reduction || a.root != b.root || a.input.defined() != b.input.defined()) return false;
  if (!a.input.defined()) return true;
  return a.input.scalar_type() == b.input.scalar_type() && a.input.numel() == b.input.numel() &&
         a.output.scalar_type() == b.output.scalar_type() && a.output.numel() == b.output.numel();
}

char* bytes_at(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

void copy_elements(const at::Tensor& to, int64_t to_begin, const at::Tensor& from, int64_t from_begin, int64_t count) {
  char *destination = bytes_at(to, to_begin), *source = bytes_at(from, from_begin);
  if (destination != source && count > 0) std::memmove(destination, source, static_cast<size_t>(count * from.element_size()));
}

// Elements over which the work is cut into chunks: those of the smaller side.
int64_t work_elements(const CollectiveCall& call) {
  if (!call.input.defined()) return 0;
  return std::min(call.input.numel(), call.output.numel());
}

void reduce_range(const HubCollective& c, int64_t input_begin, const std::vector<void*>& outputs, int64_t count) {
  std::vector<const void*> inputs;
  for (const auto& input : c.inputs) inputs.push_back(bytes_at(input, input_begin));
  bool known = reduce_slices(c.first.input.scalar_type(), c.first.reduction, inputs, outputs, count);
  PLAIT_CHECK(known, "no reduction for type ", c10::toString(c.first.input.scalar_type()));
}

// Elements [begin, end) of the operation, for all members at once.
void run_chunk(const HubCollective& c, int64_t begin, int64_t end) {
  int64_t count = end - begin, size = static_cast<int64_t>(c.inputs.size());
  if (count <= 0) return;
  switch (c.first.kind) {
    case CollectiveKind::kAllReduce: {
      std::vector<void*> outputs;
      for (const auto& output : c.outputs) outputs.push_back(bytes_at(output, begin));
      reduce_range(c, begin, outputs, count);
      break;
    }
    case CollectiveKind::kReduceScatter: {
      int64_t n = c.first.output.numel();
      for (int64_t r = 0; r < size; ++r) reduce_range(c, r * n + begin, {bytes_at(c.outputs[static_cast<size_t>(r)], begin)}, count);
      break;
    }
    case CollectiveKind::kAllGather: {
      int64_t n = c.first.input.numel();
      for (const auto& output : c.outputs)
        for (int64_t r = 0; r < size; ++r) copy_elements(output, r * n + begin, c.inputs[static_cast<size_t>(r)], begin, count);
      break;
    }
    case CollectiveKind::kBroadcast:
      for (const auto& output : c.outputs) copy_elements(output, begin, c.inputs[static_cast<size_t>(c.first.root)], begin, count);
      break;
    case CollectiveKind::kBarrier: break;
  }
}

}  // namespace

void ThreadWorld::fail(int64_t rank, const std::string& message) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    failure_ = cat("rank ", rank, " failed first: ", message);
    failed_.store(true, std::memory_order_release);
  }
  wake_all();
}

void ThreadWorld::end(int64_t rank) {
  ended_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
  wake_all();
}

std::string ThreadWorld::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void ThreadWorld::wake_all() {
  for (const auto& hub : hubs_) hub->wake();
}

ThreadHub::ThreadHub(ThreadWorld* world, std::string name, std::vector<int64_t> members, std::chrono::milliseconds timeout)
    : world_(world), name_(std::move(name)), members_(std::move(members)), timeout_(timeout) {}

void ThreadHub::wake() {
  // Taking the mutex closes the gap between a waiter's check and its sleep.
  { Lock lock(mutex_); }
  changed_.notify_all();
}

std::string ThreadHub::group_text() const { return cat("group ", name_, " (ranks ", join(members_), ")"); }

std::string ThreadHub::describe(const HubCollective& c) const {
  return cat(call_text(c.first), " (operation ", c.sequence, ") of ", group_text());
}

std::string ThreadHub::describe(const HubMessage& m) const {
  return cat(m.is_send ? "send" : "recv", tensor_text(m.tensor), " from rank ", members_[static_cast<size_t>(m.source)], " to rank ",
             members_[static_cast<size_t>(m.destination)], " with tag ", m.tag, " in ", group_text());
}

template <class Operation>
void ThreadHub::throw_if_lost(const Operation& operation) const {
  if (world_->failed()) throw_error(ExitCode::kPeerLost, describe(operation), ": ", world_->failure());
}

std::shared_ptr<HubCollective> ThreadHub::enter(int rank, uint64_t sequence, CollectiveCall call) {
  Lock lock(mutex_);
  auto& slot = open_[sequence];
  if (!slot) {
    slot = std::make_shared<HubCollective>();
    slot->first = call;
    slot->first_rank = rank;
    slot->sequence = sequence;
    slot->inputs.resize(members_.size());
    slot->outputs.resize(members_.size());
    slot->here.resize(members_.size());
  }
  std::shared_ptr<HubCollective> c = slot;
  throw_if_lost(*c);
  if (c->broken.empty() && !same_call(c->first, call)) {
    c->broken = cat("ranks of ", group_text(), " disagree on operation ", sequence, ": rank ", members_[static_cast<size_t>(c->first_rank)],
                    " calls ", call_text(c->first), ", rank ", members_[static_cast<size_t>(rank)], " calls ", call_text(call));
    changed_.notify_all();
  }
  auto r = static_cast<size_t>(rank);
  c->inputs[r] = call.input;
  c->outputs[r] = call.output;
  c->here[r] = true;
  if (++c->arrived == size()) open_.erase(sequence);
  if (!c->broken.empty()) throw Error(ExitCode::kBug, c->broken);
  if (c->arrived < size()) return c;
  c->elements = work_elements(c->first);
  c->num_chunks = std::max<int64_t>(1, (c->elements + kChunkElements - 1) / kChunkElements);
  if (c->num_chunks == 1) {
    run_chunks(*c, lock);  // small: the last rank does it all, the others wake to a finished operation
  } else {
    changed_.notify_all();
  }
  return c;
}

void ThreadHub::run_chunks(HubCollective& c, Lock& lock) {
  int64_t elements = c.elements;
  while (c.next_chunk < c.num_chunks) {
    int64_t chunk = c.next_chunk++;
    lock.unlock();
    std::string problem;
    try {
      run_chunk(c, chunk * kChunkElements, std::min(elements, (chunk + 1) * kChunkElements));
    } catch (const std::exception& e) {
      problem = e.what();
    }
    lock.lock();
    if (!problem.empty() && c.broken.empty()) c.broken = problem;
    if (++c.chunks_done == c.num_chunks) {
      c.complete = true;
      c.first.input = c.first.output = at::Tensor();  // the owners free their tensors: a finished operation holds no memory
      c.inputs.clear();
      c.outputs.clear();
      changed_.notify_all();
    }
  }
}

void ThreadHub::wait(HubCollective& c, int rank) {
  Lock lock(mutex_);
  auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (true) {
    if (!c.broken.empty()) throw Error(ExitCode::kBug, c.broken);
    if (c.complete) return;
    throw_if_lost(c);
    if (c.next_chunk < c.num_chunks) {
      run_chunks(c, lock);
      continue;
    }
    std::vector<int64_t> missing, gone;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (c.here[r]) continue;
      missing.push_back(members_[r]);
      if (world_->ended(members_[r])) gone.push_back(members_[r]);
    }
    if (!gone.empty())
      throw_error(ExitCode::kPeerLost, "rank ", members_[static_cast<size_t>(rank)], " waits in ", describe(c), ", but rank ", join(gone),
                  " has ended without calling it");
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !c.complete)
      throw_error(ExitCode::kHang, "rank ", members_[static_cast<size_t>(rank)], " waited ", timeout_.count(), " ms in ", describe(c),
                  missing.empty() ? "" : cat("; not there: rank ", join(missing)));
  }
}

bool ThreadHub::poll(HubCollective& c) {
  Lock lock(mutex_);
  if (c.next_chunk < c.num_chunks) run_chunks(c, lock);
  return c.complete || !c.broken.empty() || world_->failed();
}

std::shared_ptr<HubMessage> ThreadHub::post(HubMessage message) {
  auto mine = std::make_shared<HubMessage>(std::move(message));
  Lock lock(mutex_);
  throw_if_lost(*mine);
  auto& queue = posts_[{mine->source, mine->destination, mine->tag}];
  if (queue.empty() || queue.front()->is_send == mine->is_send) {
    queue.push_back(mine);
    return mine;
  }
  std::shared_ptr<HubMessage> other = queue.front();
  queue.pop_front();
  if (mine->tensor.numel() != other->tensor.numel() || mine->tensor.scalar_type() != other->tensor.scalar_type()) {
    mine->broken = other->broken = cat("message mismatch: ", describe(*other), " meets ", describe(*mine));
    changed_.notify_all();
    throw Error(ExitCode::kBug, mine->broken);
  }
  lock.unlock();
  const at::Tensor& from = mine->is_send ? mine->tensor : other->tensor;
  const at::Tensor& to = mine->is_send ? other->tensor : mine->tensor;
  copy_elements(to, 0, from, 0, from.numel());
  lock.lock();
  mine->complete = other->complete = true;
  mine->tensor = other->tensor = at::Tensor();  // the owner frees it: a finished message holds no memory
  changed_.notify_all();
  return mine;
}

void ThreadHub::wait(HubMessage& m) {
  Lock lock(mutex_);
  auto deadline = std::chrono::steady_clock::now() + timeout_;
  int64_t self = members_[static_cast<size_t>(m.is_send ? m.source : m.destination)];
  int64_t peer = members_[static_cast<size_t>(m.is_send ? m.destination : m.source)];
  while (true) {
    if (!m.broken.empty()) throw Error(ExitCode::kBug, m.broken);
    if (m.complete) return;
    throw_if_lost(m);
    if (world_->ended(peer))
      throw_error(ExitCode::kPeerLost, "rank ", self, " waits in ", describe(m), ", but rank ", peer, " has ended without its part");
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !m.complete)
      throw_error(ExitCode::kHang, "rank ", self, " waited ", timeout_.count(), " ms in ", describe(m));
  }
}

bool ThreadHub::poll(HubMessage& m) {
  Lock lock(mutex_);
  return m.complete || !m.broken.empty() || world_->failed();
}

}  // namespace plait::detail
