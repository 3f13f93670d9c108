#include "plait/tensor/wire_codec.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "plait/base/error.h"
#include "plait/tensor/parallel.h"
#include "plait/tensor/wire_kernels.h"

namespace plait {

namespace {

int64_t blocks_of(int64_t length) { return (length + kWireBlock - 1) / kWireBlock; }
int64_t payload_size(WireType type) { return type == WireType::kFloat8 ? 1 : 2; }
at::ScalarType payload_type(WireType type) {
  return type == WireType::kBFloat16 ? at::kBFloat16 : type == WireType::kFloat16 ? at::kHalf : at::kFloat8_e4m3fn;
}

at::Tensor as_rows(const at::Tensor& values) {
  PLAIT_CHECK(values.is_contiguous() && (values.dim() == 1 || values.dim() == 2), "wire codec: values of ", values.dim(), " dimensions");
  return values.dim() == 2 ? values : values.view({1, values.numel()});
}

// One long row is shared out by its blocks, many rows by rows.
template <class Function>
void for_each_piece(int64_t rows, int64_t length, const Function& function) {
  const int64_t blocks = blocks_of(length);
  constexpr int64_t kGrain = 32;  // blocks worth a thread
  parallel_ranges(0, rows * blocks, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / blocks, first = begin % blocks, last = std::min(blocks, first + end - begin);
      const int64_t from = first * kWireBlock, to = std::min(length, last * kWireBlock);
      function(row * length + from, to - from, row * blocks + first);
      begin += last - first;
    }
  });
}

}  // namespace

int64_t wire_bytes(WireType type, int64_t rows, int64_t length) {
  return rows * length * payload_size(type) + (type == WireType::kBFloat16 ? 0 : rows * blocks_of(length));
}

at::Tensor encode_wire(WireType type, const at::Tensor& values) {
  at::NoGradGuard no_grad;
  at::Tensor in = as_rows(values);
  if (type == WireType::kBFloat16) return in.to(at::kBFloat16).view({-1}).view(at::kByte);
  in = in.to(at::kFloat);
  if (!in.device().is_cpu()) return detail::encode_with_tensor_operations(type, in);
  const int64_t rows = in.size(0), length = in.size(1);
  at::Tensor message = at::empty({wire_bytes(type, rows, length)}, at::kByte);
  if (message.numel() == 0) return message;
  const float* from = in.const_data_ptr<float>();
  uint8_t* payload = message.mutable_data_ptr<uint8_t>();
  uint8_t* scales = payload + in.numel() * payload_size(type);
  for_each_piece(rows, length, [&](int64_t at, int64_t n, int64_t block) {
    if (type == WireType::kFloat8) detail::encode_float8(from + at, n, payload + at, scales + block);
    else detail::encode_float16(from + at, n, reinterpret_cast<uint16_t*>(payload) + at, scales + block);
  });
  return message;
}

void decode_wire(WireType type, const at::Tensor& message, at::Tensor values) {
  at::NoGradGuard no_grad;
  at::Tensor out = as_rows(values);
  const int64_t rows = out.size(0), length = out.size(1);
  PLAIT_CHECK(message.numel() == wire_bytes(type, rows, length), "wire codec: message of ", message.numel(), " bytes for ", rows, " x ",
              length);
  if (message.numel() == 0) return;
  if (type == WireType::kBFloat16) {
    out.copy_(message.view(at::kBFloat16).view({rows, length}));
    return;
  }
  at::Tensor numbers = out.scalar_type() == at::kFloat ? out : at::empty({rows, length}, out.options().dtype(at::kFloat));
  if (!out.device().is_cpu()) {
    detail::decode_with_tensor_operations(type, message, numbers);
  } else {
    float* to = numbers.mutable_data_ptr<float>();
    const uint8_t* payload = message.const_data_ptr<uint8_t>();
    const uint8_t* scales = payload + numbers.numel() * payload_size(type);
    for_each_piece(rows, length, [&](int64_t at, int64_t n, int64_t block) {
      if (type == WireType::kFloat8) detail::decode_float8(payload + at, scales + block, n, to + at);
      else detail::decode_float16(reinterpret_cast<const uint16_t*>(payload) + at, scales + block, n, to + at);
    });
  }
  if (!numbers.is_same(out)) out.copy_(numbers);
}

namespace detail {

at::Tensor encode_with_tensor_operations(WireType type, const at::Tensor& values) {
  at::NoGradGuard no_grad;
  const int64_t rows = values.size(0), length = values.size(1), blocks = blocks_of(length);
  const int top = type == WireType::kFloat8 ? 8 : 14;
  at::Tensor padded = at::constant_pad_nd(values, {0, blocks * kWireBlock - length}).view({rows, blocks, kWireBlock});
  at::Tensor magnitude = padded.abs().amax(-1);
  at::Tensor finite = padded.isfinite().all(-1);
  auto [mantissa, exponent] = at::frexp(at::where(finite, magnitude, 1.0));  // mantissa in [0.5, 1)
  at::Tensor biased = exponent.to(at::kInt) + (126 - top);
  if (type == WireType::kFloat8) biased = biased + (mantissa > 0.875).to(at::kInt);
  // frexp also takes apart numbers below the smallest normal one; they and zero share the lowest scale.
  biased = at::where(magnitude < 0x1p-126, at::ones_like(biased), biased.clamp_min(1));
  at::Tensor factor = at::ldexp(at::ones_like(magnitude), 127 - biased);
  at::Tensor coded = at::where(finite.unsqueeze(-1), padded * factor.unsqueeze(-1), 0.0)
                         .view({rows, blocks * kWireBlock})
                         .narrow(1, 0, length)
                         .to(payload_type(type))
                         .contiguous();
  at::Tensor scales = at::where(finite, biased, static_cast<int64_t>(kNonFiniteBlock)).to(at::kByte);
  return at::cat({coded.view({-1}).view(at::kByte), scales.view({-1})});
}

void decode_with_tensor_operations(WireType type, const at::Tensor& message, at::Tensor values) {
  at::NoGradGuard no_grad;
  const int64_t rows = values.size(0), length = values.size(1), blocks = blocks_of(length), bytes = values.numel() * payload_size(type);
  at::Tensor numbers = message.narrow(0, 0, bytes).view(payload_type(type)).view({rows, length}).to(at::kFloat);
  at::Tensor scales = message.narrow(0, bytes, rows * blocks).view({rows, blocks}).to(at::kInt);
  at::Tensor factor = at::ldexp(at::ones_like(scales, at::kFloat), scales - 127);
  factor = at::where(scales == static_cast<int64_t>(kNonFiniteBlock), NAN, factor);
  values.copy_(numbers * factor.repeat_interleave(kWireBlock, 1).narrow(1, 0, length));
}

}  // namespace detail
}  // namespace plait
