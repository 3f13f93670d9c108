#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>

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

  void expect() override {
    // On a device messages of a pair run in the order of their calls, which must be the same on both sides.
    if (expecting_ || !group_.device().is_cpu()) return;
    expecting_ = true;
    for (Half& half : halves_) {
      make_room(half);
      for (int64_t r = 0; r < group_.size(); ++r) receive(half, r);
    }
  }

  void start(at::Tensor values, at::Tensor residual) override {
    PLAIT_CHECK(!values_.defined(), "an exchange started twice");
    values_ = std::move(values);
    residual_ = std::move(residual);
    summed_ = false;
    bytes_sent_ = 0;
    expect();
    std::vector<at::Tensor> parts(shards_.size());
    for (int64_t r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      const Span& shard = shards_[static_cast<size_t>(r)];
      at::Tensor part = values_.narrow(0, shard.begin, shard.size), left = residual_.narrow(0, shard.begin, shard.size);
      parts[static_cast<size_t>(r)] = encode_wire(type_, part);
      decode_wire(type_, parts[static_cast<size_t>(r)], left);
      at::sub_out(left, part, left);
    }
    exchange(halves_[0], std::move(parts));
  }

  void advance() override {
    if (!values_.defined() || summed_ || !group_.device().is_cpu()) return;
    const auto& works = halves_[0].works;
    if (std::all_of(works.begin(), works.end(), [](const WorkPtr& work) { return work->done(); })) proceed();
  }

  void proceed() override {
    if (summed_) return;
    at::NoGradGuard no_grad;
    halves_[0].wait();
    at::Tensor part = values_.narrow(0, own().begin, own().size), left = residual_.narrow(0, own().begin, own().size);
    // left = the sum in rank order; the own numbers are exact.
    at::Tensor other = at::empty_like(part);
    for (int64_t r = 0; r < group_.size(); ++r) {
      const bool is_own = r == group_.rank();
      if (!is_own) decode_wire(type_, halves_[0].arriving[static_cast<size_t>(r)], other);
      if (r == 0) left.copy_(is_own ? part : other);
      else left.add_(is_own ? part : other);
    }
    at::Tensor sum = encode_wire(type_, left);
    decode_wire(type_, sum, part);
    left.sub_(part);
    summed_ = true;
    exchange(halves_[1], std::vector<at::Tensor>(shards_.size(), sum));
  }

  void finish() override {
    at::NoGradGuard no_grad;
    proceed();
    halves_[1].wait();
    for (int64_t r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      const Span& shard = shards_[static_cast<size_t>(r)];
      decode_wire(type_, halves_[1].arriving[static_cast<size_t>(r)], values_.narrow(0, shard.begin, shard.size));
    }
    for (Half& half : halves_) half.arriving.clear();
    expecting_ = false;
    values_.reset();
    residual_.reset();
  }

  int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  // First the parts of the own shard arrive, then the others' sums.
  struct Half {
    int number;
    std::vector<at::Tensor> arriving{};  // [rank] messages; undefined for the own one
    std::vector<at::Tensor> leaving{};
    std::vector<WorkPtr> works{};
    void wait() {
      for (const WorkPtr& work : works) work->wait();
      works.clear();
      leaving.clear();
    }
  };

  const Span& own() const { return shards_[static_cast<size_t>(group_.rank())]; }

  void make_room(Half& half) {
    half.arriving.assign(shards_.size(), {});
    for (int64_t r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      const Span& shard = half.number == 0 ? own() : shards_[static_cast<size_t>(r)];
      half.arriving[static_cast<size_t>(r)] =
          at::empty({wire_bytes(type_, 1, shard.size)}, at::TensorOptions().dtype(at::kByte).device(group_.device()));
    }
  }

  void receive(Half& half, int64_t from) {
    if (from == group_.rank()) return;
    const at::Tensor& in = half.arriving[static_cast<size_t>(from)];
    if (in.numel() > 0) half.works.push_back(group_.recv(in, from, tag_ + half.number));
  }

  // The lower rank of a pair sends first: where calls run in order, as on a device, both sides must not begin with their send.
  void exchange(Half& half, std::vector<at::Tensor> leaving) {
    half.leaving = std::move(leaving);
    if (!expecting_) make_room(half);
    for (int64_t r = 0; r < group_.size(); ++r) {
      if (r == group_.rank()) continue;
      const at::Tensor& out = half.leaving[static_cast<size_t>(r)];
      if (!expecting_ && group_.rank() > r) receive(half, r);
      if (out.numel() > 0) half.works.push_back(group_.send(out, r, tag_ + half.number));
      if (!expecting_ && group_.rank() < r) receive(half, r);
      bytes_sent_ += out.numel();
    }
  }

  ProcessGroup& group_;
  WireType type_;
  int tag_;
  std::vector<Span> shards_;  // [rank]
  at::Tensor values_, residual_;
  std::array<Half, 2> halves_{Half{0}, Half{1}};
  bool expecting_ = false;  // receives of both halves are posted
  bool summed_ = false;
  int64_t bytes_sent_ = 0;
};

}  // namespace

int64_t all_reduce_bytes(int64_t bytes, int64_t ranks) { return 2 * bytes * (ranks - 1) / ranks; }

std::unique_ptr<Exchange> make_quantized_exchange(ProcessGroup& group, WireType type, int64_t numel, int tag) {
  return std::make_unique<QuantizedExchange>(group, type, numel, tag);
}

}  // namespace plait
