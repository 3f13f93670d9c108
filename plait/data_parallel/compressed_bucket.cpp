#include "plait/data_parallel/compressed_bucket.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "plait/base/error.h"

namespace plait {

namespace {

MatrixSpan matrix_span(const Parameter& p, int64_t begin) {
  const int64_t rows = p.local_shape.empty() ? 1 : p.local_shape[0];
  return {p.name, begin, rows, rows > 0 ? p.numel / rows : 0};
}

bool compressible(const Parameter& p, const CompressionOptions& options) {
  if (p.local_shape.size() < 2 || p.numel == 0) return false;
  if (options.tensor_size > 1 && p.shard_axis < 0 && !p.partial_over_tp) return false;
  MatrixSpan span = matrix_span(p, 0);
  return options.config.algorithm != GradientCompression::kPowerSGD || low_rank_pays(span.rows, span.columns, options.config.rank);
}

// For the metrics only, so in the numbers' own type: a conversion on the way would cost more than the rest of the bucket.
double squares(const at::Tensor& t) { return at::dot(t, t).item<double>(); }

}  // namespace

std::unique_ptr<CompressedBucket> CompressedBucket::make(const std::vector<Parameter*>& parameters, ProcessGroup& data,
                                                         const CompressionOptions& options, int tag) {
  std::unique_ptr<CompressedBucket> bucket(new CompressedBucket(data, options));
  for (Parameter* p : parameters) {
    const bool is_compressed = compressible(*p, options);
    int64_t& end = is_compressed ? bucket->num_compressed_ : bucket->num_plain_;
    if (p->numel > 0) (is_compressed ? bucket->compressed_ : bucket->plain_).push_back({p, end});
    end += p->numel;
  }
  if (bucket->compressed_.empty()) return nullptr;
  bucket->make_exchange(tag);
  return bucket;
}

void CompressedBucket::make_exchange(int tag) {
  type_ = compressed_[0].parameter->gradient.options();
  const CommCompressionConfig& c = options_.config;
  switch (c.algorithm) {
    case GradientCompression::kBFloat16: exchange_ = make_quantized_exchange(data_, WireType::kBFloat16, num_compressed_, tag); break;
    case GradientCompression::kFloat16: exchange_ = make_quantized_exchange(data_, WireType::kFloat16, num_compressed_, tag); break;
    case GradientCompression::kFloat8: exchange_ = make_quantized_exchange(data_, WireType::kFloat8, num_compressed_, tag); break;
    case GradientCompression::kTopK: exchange_ = make_top_k_exchange(data_, c.ratio, num_compressed_); break;
    case GradientCompression::kNccl: exchange_ = make_library_exchange(data_); break;
    case GradientCompression::kPowerSGD: {
      std::vector<MatrixSpan> matrices;
      for (const Piece& piece : compressed_) matrices.push_back(matrix_span(*piece.parameter, piece.begin));
      exchange_ = make_power_sgd_exchange(data_, std::move(matrices), c.rank, options_.seed, type_);
      break;
    }
    case GradientCompression::kNone: PLAIT_CHECK(false, "a compressed bucket without an algorithm");
  }
  if (!feeds_back()) return;
  residual_ = at::zeros({num_compressed_}, type_);
  next_residual_ = options_.steps_may_skip ? at::zeros({num_compressed_}, type_) : residual_;
}

void CompressedBucket::start(double scale) {
  at::NoGradGuard no_grad;
  settle(true);
  scale_ = scale;
  auto pack = [&](const std::vector<Piece>& pieces, int64_t numel) {
    at::Tensor packed = at::empty({numel}, type_);
    for (const Piece& piece : pieces) packed.narrow(0, piece.begin, piece.parameter->numel).copy_(piece.parameter->gradient.reshape({-1}));
    return packed;
  };
  if (num_plain_ > 0) {
    plain_values_ = pack(plain_, num_plain_);
    plain_work_ = data_.all_reduce(plain_values_);
  }
  values_ = pack(compressed_, num_compressed_);
  if (residual_.defined()) values_.add_(residual_, scale);
  else next_residual_ = at::empty({num_compressed_}, type_);  // for its size only
  value_squares_ = squares(values_);
  exchange_->start(values_, next_residual_);
}

void CompressedBucket::advance() {
  if (values_.defined()) exchange_->advance();
}

void CompressedBucket::proceed() { exchange_->proceed(); }

void CompressedBucket::unpack(const std::vector<Piece>& pieces, const at::Tensor& packed) {
  for (const Piece& piece : pieces)
    piece.parameter->gradient.copy_(packed.narrow(0, piece.begin, piece.parameter->numel).view(piece.parameter->local_shape));
}

void CompressedBucket::finish() {
  at::NoGradGuard no_grad;
  exchange_->finish();
  residual_squares_ = squares(next_residual_);
  if (residual_.defined() && scale_ != 1) next_residual_.div_(scale_);
  if (!residual_.defined()) next_residual_.reset();
  unpack(compressed_, values_);
  values_.reset();
  if (plain_work_) {
    plain_work_->wait();
    unpack(plain_, plain_values_);
    plain_work_.reset();
    plain_values_.reset();
  }
  unsettled_ = true;
}

void CompressedBucket::settle(bool applied) {
  if (!unsettled_) return;
  unsettled_ = false;
  if (applied) std::swap(residual_, next_residual_);
  exchange_->settle(applied);
}

std::vector<NamedTensor> CompressedBucket::state() {
  settle(true);
  std::vector<NamedTensor> out;
  if (residual_.defined())
    for (const Piece& piece : compressed_)
      out.push_back({piece.parameter->name + ".residual",
                     residual_.narrow(0, piece.begin, piece.parameter->numel).view(piece.parameter->local_shape)});
  for (NamedTensor& more : exchange_->state()) out.push_back(std::move(more));
  return out;
}

int64_t CompressedBucket::bytes_sent() const {
  return exchange_->bytes_sent() + all_reduce_bytes(num_plain_ * static_cast<int64_t>(type_.dtype().itemsize()), data_.size());
}

}  // namespace plait
