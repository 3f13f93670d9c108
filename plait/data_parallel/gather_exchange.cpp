// The exchanges of one collective: the largest elements by all_gather, and 16 bits by the library's all_reduce.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "plait/base/error.h"
#include "plait/data_parallel/exchange.h"

namespace plait {

namespace {

class TopKExchange : public Exchange {
 public:
  TopKExchange(ProcessGroup& group, double ratio, int64_t numel)
      : group_(group), count_(std::clamp<int64_t>(static_cast<int64_t>(std::ceil(ratio * static_cast<double>(numel))), 1, numel)),
        index_type_(numel <= std::numeric_limits<int32_t>::max() ? at::kInt : at::kLong) {}

  void start(at::Tensor values, at::Tensor residual) override {
    at::NoGradGuard no_grad;
    values_ = std::move(values);
    at::Tensor places = std::get<1>(values_.abs().topk(count_, 0, /*largest=*/true, /*sorted=*/false));
    own_ = at::cat({values_.index_select(0, places).view(at::kByte), places.to(index_type_).view(at::kByte)});
    residual.copy_(values_);
    residual.index_fill_(0, places, 0.0);
    all_ = at::empty({group_.size(), own_.numel()}, own_.options());
    work_ = group_.all_gather(all_.view({-1}), own_);
  }

  // In rank order, so that all ranks add the same numbers in the same order.
  void finish() override {
    at::NoGradGuard no_grad;
    work_->wait();
    const int64_t bytes = count_ * static_cast<int64_t>(values_.element_size());
    values_.zero_();
    for (int64_t r = 0; r < group_.size(); ++r) {
      at::Tensor message = all_.select(0, r).clone();  // memory of its own: aligned for every type
      at::Tensor numbers = message.narrow(0, 0, bytes).view(values_.scalar_type());
      at::Tensor places = message.narrow(0, bytes, message.numel() - bytes).clone().view(index_type_).to(at::kLong);
      values_.index_add_(0, places, numbers);
    }
    values_.reset();
    work_.reset();
    all_.reset();
  }

  int64_t bytes_sent() const override { return own_.defined() ? own_.numel() * (group_.size() - 1) : 0; }

 private:
  ProcessGroup& group_;
  int64_t count_;
  at::ScalarType index_type_;
  at::Tensor values_, own_, all_;
  WorkPtr work_;
};

class LibraryExchange : public Exchange {
 public:
  explicit LibraryExchange(ProcessGroup& group) : group_(group) {}

  void start(at::Tensor values, at::Tensor residual) override {
    at::NoGradGuard no_grad;
    values_ = std::move(values);
    half_ = values_.to(at::kBFloat16);
    at::sub_out(residual, values_, half_);
    work_ = group_.all_reduce(half_);
  }

  void finish() override {
    at::NoGradGuard no_grad;
    work_->wait();
    values_.copy_(half_);
    bytes_sent_ = all_reduce_bytes(half_.numel() * 2, group_.size());
    half_.reset();
    values_.reset();
    work_.reset();
  }

  int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  ProcessGroup& group_;
  at::Tensor values_, half_;
  WorkPtr work_;
  int64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_top_k_exchange(ProcessGroup& group, double ratio, int64_t numel) {
  return std::make_unique<TopKExchange>(group, ratio, numel);
}

std::unique_ptr<Exchange> make_library_exchange(ProcessGroup& group) { return std::make_unique<LibraryExchange>(group); }

}  // namespace plait
