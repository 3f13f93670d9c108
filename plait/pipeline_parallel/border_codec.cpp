#include "plait/pipeline_parallel/border_codec.h"

#include <ATen/ATen.h>

#include "plait/base/error.h"

namespace plait {

namespace {

// Nothing where the wish saves nothing; settings that would widen or only lose precision are refused before (validate_train.cpp).
std::optional<WireType> narrower_type(BorderCompression wish, at::ScalarType compute_type) {
  const bool is_half = compute_type == at::kBFloat16 || compute_type == at::kHalf;
  switch (wish) {
    case BorderCompression::kNone: return std::nullopt;
    case BorderCompression::kBFloat16: return is_half ? std::nullopt : std::optional(WireType::kBFloat16);
    case BorderCompression::kFloat16: return is_half ? std::nullopt : std::optional(WireType::kFloat16);
    case BorderCompression::kFloat8: return WireType::kFloat8;
  }
  PLAIT_CHECK(false, "border compression");
  return std::nullopt;
}

}  // namespace

BorderCodec::BorderCodec(BorderCompression wish, at::ScalarType compute_type, at::Device device)
    : type_(narrower_type(wish, compute_type)), options_(at::TensorOptions().dtype(compute_type).device(device)) {}

at::Tensor BorderCodec::encode(const at::Tensor& border) {
  at::Tensor message = type_ ? encode_wire(*type_, border) : border;
  const auto plain = static_cast<int64_t>(border.nbytes()), sent = static_cast<int64_t>(message.nbytes());
  bytes_sent_ += sent;
  bytes_saved_ += plain - sent;
  return message;
}

at::Tensor BorderCodec::arriving(int64_t rows, int64_t width) const {
  if (!type_) return at::empty({rows, width}, options_);
  return at::empty({wire_bytes(*type_, rows, width)}, options_.dtype(at::kByte));
}

at::Tensor BorderCodec::decode(const at::Tensor& message, int64_t rows, int64_t width) const {
  if (!type_) return message;
  at::Tensor border = at::empty({rows, width}, options_);
  decode_wire(*type_, message, border);
  return border;
}

}  // namespace plait
