#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "plait/base/error.h"
#include "plait/data_parallel/exchange.h"
#include "plait/plan/partition.h"
#include "plait/tensor/wire_kernels.h"

namespace plait {

namespace {

class QuantizedExchange : public Exchange {
 public:
  QuantizedExchange(ProcessGroup& group, WireType type, int64_t numel, int tag) : group_(group), type_(type), tag_(tag) {
    const int64_t blocks = (numel + kWireBlock - 1) / kWireBlock;
    for (int64_t r = 0; r < group.size(); ++r) {
      Span span = split_evenly(blocks, group.size(), r);
      const int64_t begin = std::min(numel, span.begin * kWireBlock);
      shards_.push_back({begin, std::min(numel, span.end() * kWireBlock) - begin});
    }
  }

  void start(at::Tensor values, at::Tensor residual) override {
    PLAIT_CHECK(!values_.defined(), "an exchange started twice");
    values_ = std::move(values);
    residual_ = std::move(residual);
    summed_ = false;
    bytes_sent_ = 0;
    const size_t size = shards_.size();
    arriving_.assign(size, {});
    leaving_.assign(size, {});
    const int64_t own_bytes = wire_bytes(type_, 1, own().size);
    for (int64_t r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      const Span& shard = shards_[static_cast<size_t>(r)];
      at::Tensor part = values_.narrow(0, shard.begin, shard.size), left = residual_.narrow(0, shard.begin, shard.size);
      leaving_[static_cast<size_t>(r)] = encode_wire(type_, part);
      decode_wire(type_, leaving_[static_cast<size_t>(r)], left);
      at::sub_out(left, part, left);
      arriving_[static_cast<size_t>(r)] = message(own_bytes);
    }
    post(tag_);
  }

  void advance() override {
    // On a device messages of a pair run in the order of their calls, which must be the same on both sides.
    if (!values_.defined() || summed_ || !values_.device().is_cpu()) return;
    if (std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) { return work->done(); })) proceed();
  }

  void proceed() override {
    if (summed_) return;
    at::NoGradGuard no_grad;
    wait();
    at::Tensor part = values_.narrow(0, own().begin, own().size), left = residual_.narrow(0, own().begin, own().size);
    // left = the sum in rank order; the own numbers are exact.
    at::Tensor other = at::empty_like(part);
    for (int64_t r = 0; r < group_.size(); ++r) {
      const bool is_own = r == group_.rank();
      if (!is_own) decode_wire(type_, arriving_[static_cast<size_t>(r)], other);
      if (r == 0) left.copy_(is_own ? part : other);
      else left.add_(is_own ? part : other);
    }
    at::Tensor sum = encode_wire(type_, left);
    decode_wire(type_, sum, part);
    left.sub_(part);
    for (int64_t r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      leaving_[static_cast<size_t>(r)] = sum;
      arriving_[static_cast<size_t>(r)] = message(wire_bytes(type_, 1, shards_[static_cast<size_t>(r)].size));
    }
    summed_ = true;
    post(tag_ + 1);
  }

  void finish() override {
    at::NoGradGuard no_grad;
    proceed();
    wait();
    for (int64_t r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      const Span& shard = shards_[static_cast<size_t>(r)];
      decode_wire(type_, arriving_[static_cast<size_t>(r)], values_.narrow(0, shard.begin, shard.size));
    }
    arriving_.clear();
    leaving_.clear();
    values_.reset();
    residual_.reset();
  }

  int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  const Span& own() const { return shards_[static_cast<size_t>(group_.rank())]; }
  at::Tensor message(int64_t bytes) const { return at::empty({bytes}, values_.options().dtype(at::kByte)); }

  // The lower rank of a pair sends first: where calls run in order, as on a device, both sides must not begin with their send.
  void post(int tag) {
    for (int64_t r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      const at::Tensor &out = leaving_[static_cast<size_t>(r)], &in = arriving_[static_cast<size_t>(r)];
      for (bool sending : {group_.rank() < r, group_.rank() > r}) {
        if (sending && out.numel() > 0) works_.push_back(group_.send(out, r, tag));
        if (!sending && in.numel() > 0) works_.push_back(group_.recv(in, r, tag));
      }
      bytes_sent_ += out.numel();
    }
  }

  void wait() {
    for (const WorkPtr& work : works_) work->wait();
    works_.clear();
  }

  ProcessGroup& group_;
  WireType type_;
  int tag_;
  std::vector<Span> shards_;  // [rank]
  at::Tensor values_, residual_;
  std::vector<at::Tensor> leaving_, arriving_;  // [rank] messages; undefined for the own one
  std::vector<WorkPtr> works_;
  bool summed_ = false;
  int64_t bytes_sent_ = 0;
};

}  // namespace

int64_t all_reduce_bytes(int64_t bytes, int64_t ranks) { return 2 * bytes * (ranks - 1) / ranks; }

std::unique_ptr<Exchange> make_quantized_exchange(ProcessGroup& group, WireType type, int64_t numel, int tag) {
  return std::make_unique<QuantizedExchange>(group, type, numel, tag);
}

}  // namespace plait
