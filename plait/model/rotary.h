// Rotary position embedding (Su et al., arXiv 2104.09864) in Hugging Face's half-split layout, with its scaling kinds.
// Letters: T tokens, D head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "plait/config/model_shape.h"

namespace plait {

// Angle of one position for each of the D/2 pairs. num_positions: length of the longest row (only "dynamic" depends on it).
std::vector<double> rotary_frequencies(const RopeOptions& rope, int64_t head_size, int64_t max_positions, int64_t num_positions);
// Factor on cos and sin (yarn); 1 otherwise.
double rotary_attention_factor(const RopeOptions& rope);

struct RotaryTable {
  at::Tensor cosine, sine;  // [T, D/2], fp32 (fp64 when computing in fp64)
  bool defined() const { return cosine.defined(); }
};
RotaryTable make_rotary_table(const ModelShape& shape, const at::Tensor& positions, at::ScalarType type);

// Rotates heads in place: x [T, n, D], rows may be strided, last axis contiguous. inverse: the transpose (backward).
void apply_rotary(at::Tensor x, const RotaryTable& table, bool inverse);

}  // namespace plait
