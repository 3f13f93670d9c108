#include "plait/comm/ring_group.h"

#include <ATen/ATen.h>

#include <deque>

#include "plait/base/error.h"
#include "plait/comm/row_exchange.h"

namespace plait {
namespace {

constexpr int64_t kWholeBytes = 32 << 10;  // up to here everybody sends everything to everybody: one journey instead of two
constexpr int kSmallTag = kRowTag + 3, kResultTag = kRowTag + 4, kBroadcastTag = kRowTag + 5;

// Messages, then what follows when they are there; that may start further messages.
struct RingOperation {
  WorkPtr first;
  std::function<WorkPtr()> then;
  bool past_first = false;
  WorkPtr last;  // null: nothing more
};

// Operations whose first messages are under way. What follows them starts in the order of the calls on every member, so that messages of
// one tag never pass each other.
class RingQueue {
 public:
  // Polling would start the second messages at moments that differ between ranks; the streams of a device need one order.
  explicit RingQueue(bool may_poll) : may_poll_(may_poll) {}
  void push(std::shared_ptr<RingOperation> operation) { waiting_.push_back(std::move(operation)); }
  void wait(RingOperation& operation) {
    while (!operation.past_first) {
      PLAIT_CHECK(!waiting_.empty(), "a collective whose second half never began");
      waiting_.front()->first->wait();
      pass_front();
    }
    if (operation.last) operation.last->wait();
    poll();
  }
  bool done(RingOperation& operation) {
    poll();
    return operation.past_first && (!operation.last || operation.last->done());
  }
  void poll() {
    while (may_poll_ && !waiting_.empty() && waiting_.front()->first->done()) pass_front();
  }

 private:
  void pass_front() {
    std::shared_ptr<RingOperation> operation = std::move(waiting_.front());
    waiting_.pop_front();
    if (operation->then) operation->last = operation->then();
    operation->then = {};
    operation->past_first = true;
  }
  std::deque<std::shared_ptr<RingOperation>> waiting_;
  bool may_poll_;
};

class RingWork : public Work {
 public:
  RingWork(std::shared_ptr<RingQueue> queue, std::shared_ptr<RingOperation> operation)
      : queue_(std::move(queue)), operation_(std::move(operation)) {}
  void wait() override { queue_->wait(*operation_); }
  bool done() override { return queue_->done(*operation_); }

 private:
  std::shared_ptr<RingQueue> queue_;
  std::shared_ptr<RingOperation> operation_;
};

class RingGroup : public ProcessGroup {
 public:
  explicit RingGroup(ProcessGroup& inner) : inner_(inner), queue_(std::make_shared<RingQueue>(inner.device().is_cpu())) {}

  int64_t rank() const override { return inner_.rank(); }
  int64_t size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  const std::vector<int64_t>& members() const override { return inner_.members(); }
  at::Device device() const override { return inner_.device(); }
  WorkPtr send(at::Tensor tensor, int64_t destination, int tag) override { return inner_.send(tensor, destination, tag); }
  WorkPtr recv(at::Tensor tensor, int64_t source, int tag) override { return inner_.recv(tensor, source, tag); }
  void barrier() override { inner_.barrier(); }

  WorkPtr all_reduce(at::Tensor tensor, ReduceOp op) override {
    check(tensor);
    at::Tensor flat = tensor.view({-1});
    if (flat.numel() * static_cast<int64_t>(flat.element_size()) <= kWholeBytes) return reduce_whole(flat, op);
    auto pieces = even_rows(flat.numel(), size());
    at::Tensor own = flat.narrow(0, pieces[static_cast<size_t>(rank())].begin, pieces[static_cast<size_t>(rank())].size);
    auto parts = scatter(flat, pieces, op);
    return start(all_of({parts->incoming(), parts->outgoing()}), [this, parts, own, flat, pieces] {
      parts->sum(own);
      return share_rows(inner_, flat, pieces, kResultTag);
    });
  }

  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input) override {
    check(output);
    check(input);
    PLAIT_CHECK(input.numel() == output.numel() * size(), "reduce_scatter of ", input.numel(), " elements into ", output.numel());
    auto parts = scatter(input.view({-1}), equal_rows(output.numel(), size()), ReduceOp::kSum);
    return start(all_of({parts->incoming(), parts->outgoing()}), [parts, output] {
      parts->sum(output.view({-1}));
      return WorkPtr();
    });
  }

  WorkPtr all_gather(at::Tensor output, at::Tensor input) override {
    check(output);
    check(input);
    PLAIT_CHECK(output.numel() == input.numel() * size(), "all_gather of ", input.numel(), " elements into ", output.numel());
    at::NoGradGuard no_grad;
    at::Tensor whole = output.view({-1});
    at::Tensor own = whole.narrow(0, rank() * input.numel(), input.numel());
    if (own.data_ptr() != input.data_ptr()) own.copy_(input.view({-1}));
    return start(share_rows(inner_, whole, equal_rows(input.numel(), size()), kSmallTag), {});
  }

  WorkPtr broadcast(at::Tensor tensor, int64_t root) override {
    check(tensor);
    std::vector<WorkPtr> works;
    if (tensor.numel() > 0 && rank() != root) works.push_back(inner_.recv(tensor, root, kBroadcastTag));
    for (int64_t step = 1; tensor.numel() > 0 && rank() == root && step < size(); ++step)
      works.push_back(inner_.send(tensor, (root + step) % size(), kBroadcastTag));
    return start(all_of(std::move(works)), {});
  }

 private:
  void check(const at::Tensor& tensor) const {
    PLAIT_CHECK(tensor.is_contiguous(), "collectives of group ", name(), " take contiguous tensors");
  }

  std::shared_ptr<RowScatterSum> scatter(const at::Tensor& flat, const std::vector<Span>& pieces, ReduceOp op) {
    auto parts = std::make_shared<RowScatterSum>(inner_, pieces, std::vector<int64_t>{}, flat.options(), /*beside=*/true, op);
    for (int64_t step = 0; step < size(); ++step) {
      const Span& piece = pieces[static_cast<size_t>(parts->owner(step))];
      parts->give(step, flat.narrow(0, piece.begin, piece.size));
    }
    return parts;
  }

  WorkPtr reduce_whole(const at::Tensor& flat, ReduceOp op) {
    at::Tensor all = at::empty({size(), flat.numel()}, flat.options());
    at::NoGradGuard no_grad;
    all[rank()].copy_(flat);
    return start(share_rows(inner_, all.view({-1}), equal_rows(flat.numel(), size()), kSmallTag), [all, flat, op] {
      std::vector<at::Tensor> parts;
      for (int64_t member = 0; member < all.size(0); ++member) parts.push_back(all[member]);
      reduce_in_order(parts, flat, op);
      return WorkPtr();
    });
  }

  WorkPtr start(WorkPtr first, std::function<WorkPtr()> then) {
    auto operation = std::make_shared<RingOperation>(RingOperation{std::move(first), std::move(then), false, {}});
    queue_->push(operation);
    queue_->poll();
    return std::make_shared<RingWork>(queue_, operation);
  }

  ProcessGroup& inner_;
  std::shared_ptr<RingQueue> queue_;
};

}  // namespace

ProcessGroupPtr make_ring_group(ProcessGroup& inner) { return std::make_shared<RingGroup>(inner); }

}  // namespace plait
