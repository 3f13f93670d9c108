// Loops behind wire_codec.h, on plain memory. Formats: fp16 (10 bits of mantissa) and fp8 e4m3 (3 bits, largest 448), in blocks of up to
// kWireBlock elements that share one power of two, so that a block's largest element is near the top of the format whatever its size
// (as in the OCP MX formats). Rounding to nearest, ties to even. A block with an element that is not finite decodes to NaN as a whole.
// The same bits on every machine.
#pragma once

#include <cstdint>

namespace plait {

inline constexpr int64_t kWireBlock = 256;
inline constexpr uint8_t kNonFiniteBlock = 255;

namespace detail {

// n elements -> payload (n x 2 or 1 bytes) and one scale a block: the biased exponent of the power of two, 1 to 254, or kNonFiniteBlock.
void encode_float16(const float* values, int64_t n, uint16_t* payload, uint8_t* scales);
void encode_float8(const float* values, int64_t n, uint8_t* payload, uint8_t* scales);
void decode_float16(const uint16_t* payload, const uint8_t* scales, int64_t n, float* values);
void decode_float8(const uint8_t* payload, const uint8_t* scales, int64_t n, float* values);

// out[n, m] = left[n, rank] x right[rank, m], all row-major, summed over rank in order: the same bits from the same factors on every machine,
// which a library's product does not promise.
void low_rank_product(const float* left, const float* right, int64_t n, int64_t m, int64_t rank, float* out);
void low_rank_product(const double* left, const double* right, int64_t n, int64_t m, int64_t rank, double* out);

}  // namespace detail
}  // namespace plait
