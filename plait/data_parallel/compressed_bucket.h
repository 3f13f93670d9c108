// CompressedBucket: the parameters of one gradient bucket, summed over the data axis by an Exchange with error feedback. What goes through
// the exchange: matrices that every rank of the data group has for itself. What goes as it is, in one message of its own: one-dimensional
// parameters (biases, norms), matrices too small to pay, and, with tensor parallelism, whatever is replicated over the tensor ranks - its
// copies must stay bit-equal, and their compression would depend on the neighbours in memory, which differ between the tensor ranks.
// Residuals are kept in the master type, in units of the unscaled gradient, so a changing loss scale does not matter to them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "plait/comm/process_group.h"
#include "plait/config/config.h"
#include "plait/data_parallel/exchange.h"
#include "plait/tensor/parameter.h"

namespace plait {

struct CompressionOptions {
  CommCompressionConfig config;
  int64_t tensor_size = 1;      // ranks of the tensor axis
  bool steps_may_skip = false;  // float16: a step may be taken back, so the residuals before it are kept until it is settled
  uint64_t seed = 0;
};

class CompressedBucket {
 public:
  // parameters: of the bucket, in memory order. tag, tag + 1: of its point-to-point messages over `data`.
  // Null when nothing in it would be compressed.
  static std::unique_ptr<CompressedBucket> make(const std::vector<Parameter*>& parameters, ProcessGroup& data,
                                                const CompressionOptions& options, int tag);

  // expect(): as Exchange's. The gradients are this rank's own, times `scale` (the loss scale); they become the sums in finish().
  void start(double scale);
  void advance();
  void expect() { exchange_->expect(); }
  void proceed();
  void finish();
  // false: the step was skipped; the state is that before it.
  void settle(bool applied);

  // Residuals (none for nccl), a view each, and what the exchange remembers. Valid between steps; writing into them is a load.
  std::vector<NamedTensor> state();

  // Of the last step, on this rank.
  int64_t bytes_sent() const;
  double residual_squares() const { return residual_squares_; }  // squared l2 norms, loss scale included
  double value_squares() const { return value_squares_; }

 private:
  struct Piece {
    Parameter* parameter;
    int64_t begin;  // in the packed numbers
  };
  CompressedBucket(ProcessGroup& data, const CompressionOptions& options) : data_(data), options_(options) {}
  void make_exchange(int tag);
  void unpack(const std::vector<Piece>& pieces, const at::Tensor& packed);
  bool feeds_back() const { return options_.config.algorithm != GradientCompression::kNccl; }

  ProcessGroup& data_;
  CompressionOptions options_;
  std::vector<Piece> compressed_, plain_;
  int64_t num_compressed_ = 0, num_plain_ = 0;  // elements
  at::TensorOptions type_;
  std::unique_ptr<Exchange> exchange_;
  at::Tensor residual_;       // before the step; undefined for nccl
  at::Tensor next_residual_;  // after it; the same tensor unless steps may be skipped
  at::Tensor values_, plain_values_;
  WorkPtr plain_work_;
  double scale_ = 1, residual_squares_ = 0, value_squares_ = 0;
  bool unsettled_ = false;
};

}  // namespace plait
