#include "plait/comm/row_exchange.h"

#include <ATen/ATen.h>

#include "plait/base/error.h"
#include "plait/comm/reduce_kernels.h"

namespace plait {
namespace {

constexpr int kGatherTag = kRowTag + 1, kScatterTag = kRowTag + 2;

class WorkList : public Work {
 public:
  explicit WorkList(std::vector<WorkPtr> works) : works_(std::move(works)) {}
  void wait() override {
    for (const WorkPtr& work : works_) work->wait();
    works_.clear();
  }
  bool done() override {
    std::erase_if(works_, [](const WorkPtr& work) {
      if (!work->done()) return false;
      work->wait();  // does not block any more; a failure shows here
      return true;
    });
    return works_.empty();
  }

 private:
  std::vector<WorkPtr> works_;
};

at::Tensor rows_of(const at::Tensor& whole, const Span& piece) { return whole.narrow(0, piece.begin, piece.size); }

struct Crossing {
  WorkPtr sent, received;  // null: nothing to send or receive
};

// Streams of a device run a pair's messages one after the other: the lower rank of a pair sends first, the higher receives first.
Crossing cross(ProcessGroup& group, const at::Tensor& out, int64_t to, const at::Tensor& in, int64_t from, int tag) {
  Crossing works;
  auto send = [&] {
    if (out.numel() > 0) works.sent = group.send(out, to, tag);
  };
  if (to != from || group.rank() < to) send();
  if (in.numel() > 0) works.received = group.recv(in, from, tag);
  if (to == from && group.rank() > to) send();
  return works;
}

void keep(std::vector<WorkPtr>& works, WorkPtr work) {
  if (work) works.push_back(std::move(work));
}

}  // namespace

std::vector<Span> even_rows(int64_t num_rows, int64_t members) {
  std::vector<Span> pieces;
  for (int64_t m = 0; m < members; ++m) pieces.push_back(split_evenly(num_rows, members, m));
  return pieces;
}

std::vector<Span> equal_rows(int64_t rows, int64_t members) {
  std::vector<Span> pieces;
  for (int64_t m = 0; m < members; ++m) pieces.push_back({m * rows, rows});
  return pieces;
}

WorkPtr all_of(std::vector<WorkPtr> works) { return std::make_shared<WorkList>(std::move(works)); }

void reduce_in_order(const std::vector<at::Tensor>& parts, at::Tensor out, ReduceOp op) {
  at::NoGradGuard no_grad;
  if (out.is_cpu()) {
    std::vector<const void*> inputs;
    for (const at::Tensor& part : parts) inputs.push_back(part.const_data_ptr());
    auto reduction = op == ReduceOp::kSum   ? detail::Reduction::kSum
                     : op == ReduceOp::kMax ? detail::Reduction::kMax
                                            : detail::Reduction::kMin;
    bool known = detail::reduce_slices(out.scalar_type(), reduction, inputs, {out.mutable_data_ptr()}, out.numel());
    PLAIT_CHECK(known, "no reduction for type ", c10::toString(out.scalar_type()));
    return;
  }
  bool narrow = out.scalar_type() == at::kBFloat16 || out.scalar_type() == at::kHalf;
  at::Tensor total = narrow ? parts[0].to(at::kFloat) : parts[0].clone();
  for (size_t i = 1; i < parts.size(); ++i) {
    if (op == ReduceOp::kSum) total.add_(parts[i]);
    else total = op == ReduceOp::kMax ? at::maximum(total, parts[i]) : at::minimum(total, parts[i]);
  }
  out.copy_(total.view_as(out));
}

WorkPtr share_rows(ProcessGroup& group, const at::Tensor& whole, const std::vector<Span>& pieces, int tag) {
  std::vector<WorkPtr> works;
  const int64_t size = group.size(), rank = group.rank();
  at::Tensor own = rows_of(whole, pieces[static_cast<size_t>(rank)]);
  for (int64_t step = 1; step < size; ++step) {
    int64_t to = (rank + step) % size, from = (rank + size - step) % size;
    Crossing crossing = cross(group, own, to, rows_of(whole, pieces[static_cast<size_t>(from)]), from, tag);
    keep(works, crossing.sent);
    keep(works, crossing.received);
  }
  return all_of(std::move(works));
}

RowGather::RowGather(ProcessGroup& group, at::Tensor whole, std::vector<Span> pieces, bool beside)
    : group_(group), whole_(std::move(whole)), pieces_(std::move(pieces)), beside_(beside) {
  PLAIT_CHECK(whole_.is_contiguous() && static_cast<int64_t>(pieces_.size()) == group.size(), "pieces of a gather over group ",
              group.name());
}

Span RowGather::next() {
  const int64_t size = group_.size(), rank = group_.rank();
  PLAIT_CHECK(step_ < size, "a gather over ", size, " ranks has no further piece");
  Span now = pieces_[static_cast<size_t>((rank + size - step_) % size)];
  if (coming_) coming_->wait();
  coming_.reset();
  ++step_;
  if (step_ == size) return now;
  const Span& after = pieces_[static_cast<size_t>((rank + size - step_) % size)];
  Crossing crossing = cross(group_, rows_of(whole_, now), (rank + 1) % size, rows_of(whole_, after), (rank + size - 1) % size, kGatherTag);
  keep(sending_, crossing.sent);
  coming_ = crossing.received;
  if (coming_ && !beside_) coming_->wait();
  return now;
}

void RowGather::finish() {
  PLAIT_CHECK(step_ == group_.size(), "a gather ends before its last piece");
  for (const WorkPtr& work : sending_) work->wait();
  sending_.clear();
}

RowScatterSum::RowScatterSum(ProcessGroup& group, std::vector<Span> pieces, std::vector<int64_t> row_shape,
                             const at::TensorOptions& options, bool beside, ReduceOp op)
    : group_(group), pieces_(std::move(pieces)), beside_(beside), op_(op) {
  PLAIT_CHECK(static_cast<int64_t>(pieces_.size()) == group.size(), "pieces of a sum over group ", group.name());
  auto size = static_cast<size_t>(group.size());
  row_shape.insert(row_shape.begin(), pieces_[static_cast<size_t>(group.rank())].size);
  parts_.resize(size);
  coming_from_.resize(size);
  for (int64_t member = 0; member < group.size(); ++member)
    if (member != group.rank()) parts_[static_cast<size_t>(member)] = at::empty(row_shape, options);
  // On a device a pair's messages keep one order, so each receive is posted beside its send.
  if (group.device().is_cpu())
    for (int64_t step = 0; step + 1 < group.size(); ++step) receive_from(giver(step));
}

void RowScatterSum::receive_from(int64_t member) {
  auto m = static_cast<size_t>(member);
  if (parts_[m].numel() == 0) return;
  coming_from_[m] = group_.recv(parts_[m], member, kScatterTag);
  coming_.push_back(coming_from_[m]);
}

void RowScatterSum::give(int64_t step, at::Tensor part) {
  const int64_t to = owner(step);
  PLAIT_CHECK(part.is_contiguous() && part.size(0) == pieces_[static_cast<size_t>(to)].size, "rows given to member ", to);
  if (to == group_.rank()) {
    parts_[static_cast<size_t>(to)] = std::move(part);
    return;
  }
  if (group_.device().is_cpu()) {
    if (part.numel() > 0) sending_.push_back(group_.send(part, to, kScatterTag));
    // Shared memory moves only when somebody looks.
    if (beside_ && !coming_.empty()) coming_.back()->done();
  } else {
    const int64_t from = giver(step);
    auto f = static_cast<size_t>(from);
    Crossing crossing = cross(group_, part, to, parts_[f], from, kScatterTag);
    keep(sending_, crossing.sent);
    coming_from_[f] = crossing.received;
    keep(coming_, crossing.received);
  }
  given_.push_back(std::move(part));
  if (const WorkPtr& crossing = coming_from_[static_cast<size_t>(giver(step))]; crossing && !beside_) crossing->wait();
}

void RowScatterSum::sum(at::Tensor out) {
  incoming()->wait();
  if (out.numel() > 0) reduce_in_order(parts_, std::move(out), op_);
}

}  // namespace plait
