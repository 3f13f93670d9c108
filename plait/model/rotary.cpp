#include "plait/model/rotary.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "plait/base/error.h"

namespace plait {

namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Llama 3.1: long waves are slowed by `factor`, short ones kept, a linear blend between (Hugging Face, modeling_rope_utils).
double llama3_frequency(const RopeOptions& rope, double frequency) {
  double old_length = static_cast<double>(rope.original_max_positions);
  double wavelength = kTwoPi / frequency;
  if (wavelength < old_length / rope.high_freq_factor) return frequency;
  if (wavelength > old_length / rope.low_freq_factor) return frequency / rope.factor;
  double smooth = (old_length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// YaRN (Peng et al., arXiv 2309.00071): pair i blends interpolated and original frequency by a ramp.
void yarn_frequencies(const RopeOptions& rope, int64_t head_size, int64_t max_positions, std::vector<double>& frequencies) {
  double dim = static_cast<double>(head_size);
  double length = static_cast<double>(rope.original_max_positions > 0 ? rope.original_max_positions : max_positions);
  auto correction = [&](double rotations) { return dim * std::log(length / (rotations * kTwoPi)) / (2 * std::log(rope.theta)); };
  double low = std::max(std::floor(correction(rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(correction(rope.beta_slow)), dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

template <class Scalar, class Table>
void rotate_rows(Scalar* x, int64_t row_stride, int64_t head_stride, int64_t rows, int64_t heads, int64_t half, const Table* cosine,
                 const Table* sine, Table sign) {
  for (int64_t t = 0; t < rows; ++t) {
    const Table* c = cosine + t * half;
    const Table* s = sine + t * half;
    for (int64_t h = 0; h < heads; ++h) {
      Scalar* a = x + t * row_stride + h * head_stride;
      Scalar* b = a + half;
      for (int64_t i = 0; i < half; ++i) {
        Table u = static_cast<Table>(a[i]), v = static_cast<Table>(b[i]);
        a[i] = static_cast<Scalar>(u * c[i] - sign * v * s[i]);
        b[i] = static_cast<Scalar>(v * c[i] + sign * u * s[i]);
      }
    }
  }
}

}  // namespace

std::vector<double> rotary_frequencies(const RopeOptions& rope, int64_t head_size, int64_t max_positions, int64_t num_positions) {
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::kDynamic) {
    double length = static_cast<double>(max_positions), now = static_cast<double>(std::max(num_positions, max_positions));
    double dim = static_cast<double>(head_size);
    theta *= std::pow(rope.factor * now / length - (rope.factor - 1), dim / (dim - 2));
  }
  std::vector<double> frequencies(static_cast<size_t>(head_size / 2));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
  if (rope.scaling == RopeScaling::kLinear)
    for (double& f : frequencies) f /= rope.factor;
  if (rope.scaling == RopeScaling::kLlama3)
    for (double& f : frequencies) f = llama3_frequency(rope, f);
  if (rope.scaling == RopeScaling::kYarn) yarn_frequencies(rope, head_size, max_positions, frequencies);
  return frequencies;
}

double rotary_attention_factor(const RopeOptions& rope) {
  if (rope.scaling != RopeScaling::kYarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  return rope.factor <= 1 ? 1.0 : 0.1 * std::log(rope.factor) + 1.0;
}

RotaryTable make_rotary_table(const ModelShape& shape, const at::Tensor& positions, at::ScalarType type) {
  int64_t longest = positions.numel() > 0 ? positions.max().item<int64_t>() + 1 : 0;
  auto frequencies = rotary_frequencies(shape.rope, shape.head_size, shape.max_positions, longest);
  at::Tensor f = at::empty({static_cast<int64_t>(frequencies.size())}, at::kDouble);
  std::copy(frequencies.begin(), frequencies.end(), f.mutable_data_ptr<double>());
  // fp32 angles of long texts lose digits, so angles are formed in fp64.
  at::Tensor angles = at::outer(positions.to(at::kDouble), f.to(positions.device()));
  double factor = rotary_attention_factor(shape.rope);
  return {(angles.cos() * factor).to(type), (angles.sin() * factor).to(type)};
}

void apply_rotary(at::Tensor x, const RotaryTable& table, bool inverse) {
  int64_t half = x.size(2) / 2;
  if (!x.is_cpu()) {
    at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
    at::Tensor c = table.cosine.unsqueeze(1), s = inverse ? table.sine.neg().unsqueeze(1) : table.sine.unsqueeze(1);
    at::Tensor rotated_a = a * c - b * s, rotated_b = b * c + a * s;
    a.copy_(rotated_a);
    b.copy_(rotated_b);
    return;
  }
  PLAIT_CHECK(x.stride(2) == 1, "rotary needs contiguous heads");
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "apply_rotary", [&] {
    using Table = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    rotate_rows(x.mutable_data_ptr<scalar_t>(), x.stride(0), x.stride(1), x.size(0), x.size(1), half, table.cosine.const_data_ptr<Table>(),
                table.sine.const_data_ptr<Table>(), static_cast<Table>(inverse ? -1 : 1));
  });
}

}  // namespace plait
