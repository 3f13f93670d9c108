// Wire codec: numbers as they travel in compressed messages. bf16 is a plain rounding; fp16 and fp8 (e4m3) carry one power of two for each
// block of 256 elements (wire_kernels.h), so neither a loss scale nor tiny gradients leave their range. Encoding the same values gives the
// same bytes on every machine; decoding them gives the same numbers. Elements that are not finite stay so: bf16 keeps them, a block of
// fp16 or fp8 that holds one becomes NaN.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace plait {

enum class WireType { kBFloat16, kFloat16, kFloat8 };

// Bytes of a message of rows x length elements. Blocks never cross rows, so a row's numbers do not depend on the others'.
int64_t wire_bytes(WireType type, int64_t rows, int64_t length);

// values: [length] (one row) or [rows, length], contiguous, fp32, fp64 or 16-bit. Returns its message, uint8 [wire_bytes], on the same device.
at::Tensor encode_wire(WireType type, const at::Tensor& values);
// Fills `values`, of the shape that was encoded, from a message.
void decode_wire(WireType type, const at::Tensor& message, at::Tensor values);

namespace detail {
// fp16 and fp8 in tensor operations, for devices without the kernels; the same bytes.
at::Tensor encode_with_tensor_operations(WireType type, const at::Tensor& rows);
void decode_with_tensor_operations(WireType type, const at::Tensor& message, at::Tensor rows);
}  // namespace detail

}  // namespace plait
