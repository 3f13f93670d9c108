#include "plait/tensor/parameter.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "plait/base/error.h"
#include "plait/base/random.h"

namespace plait {

namespace {

// Spans start on cache lines, so that vector loads of one parameter never straddle another's.
constexpr int64_t kAlignElements = 32;

int64_t product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t i = begin; i < end; ++i) n *= shape[i];
  return n;
}

at::ScalarType master_type(at::ScalarType compute_type) { return compute_type == at::kDouble ? at::kDouble : at::kFloat; }

template <class Scalar>
void fill_values(const Parameter& p, uint64_t seed, bool all_random, Scalar* out) {
  uint64_t key = fold_key(mix64(seed), name_key(p.name));
  double mean = p.init == InitKind::kOnes ? 1.0 : 0.0;
  double std = p.init == InitKind::kNormal ? p.init_std : all_random ? 0.1 : 0.0;
  for_each_run(p, [&](int64_t global_begin, int64_t local_begin, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      double noise = std == 0.0 ? 0.0 : std * normal01(key, static_cast<uint64_t>(global_begin + i));
      out[local_begin + i] = static_cast<Scalar>(mean + noise);
    }
  });
}

}  // namespace

std::vector<int64_t> stored_global_shape(const Parameter& parameter) {
  auto shape = parameter.global_shape;
  if (parameter.transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

void for_each_run(const Parameter& parameter, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  auto global = stored_global_shape(parameter);
  if (parameter.shard_axis < 0) {
    f(0, 0, product(global, 0, global.size()));
    return;
  }
  auto axis = static_cast<size_t>(parameter.shard_axis);
  int64_t outer = product(global, 0, axis), inner = product(global, axis + 1, global.size());
  int64_t global_rows = global[axis], local_rows = parameter.local_shape[axis];
  for (int64_t o = 0; o < outer; ++o) {
    for (const auto& piece : parameter.pieces) {
      if (piece.size == 0) continue;
      f((o * global_rows + piece.global_begin) * inner, (o * local_rows + piece.local_begin) * inner, piece.size * inner);
    }
  }
}

Parameter& ParameterStore::declare(Parameter parameter) {
  PLAIT_CHECK(!weights_.defined(), "parameter ", parameter.name, " declared after allocation");
  PLAIT_CHECK(!parameter.transposed || parameter.global_shape.size() == 2, parameter.name);
  parameters_.push_back(std::make_unique<Parameter>(std::move(parameter)));
  return *parameters_.back();
}

void ParameterStore::allocate(at::ScalarType compute_type, at::Device device, bool with_gradients, const MakeZeros& make_gradients) {
  int64_t total = 0;
  for (auto& p : parameters_) {
    p->numel = product(p->local_shape, 0, p->local_shape.size());
    if (!p->follows_previous) total = (total + kAlignElements - 1) / kAlignElements * kAlignElements;
    p->offset = total;
    total += p->numel;
  }
  auto options = at::TensorOptions().device(device);
  masters_ = at::zeros({total}, options.dtype(master_type(compute_type)));
  if (with_gradients)
    gradients_ =
        make_gradients ? make_gradients(total, master_type(compute_type)) : at::zeros({total}, options.dtype(master_type(compute_type)));
  weights_ = compute_type == masters_.scalar_type() ? masters_ : at::zeros({total}, options.dtype(compute_type));
  for (auto& p : parameters_) {
    p->master = masters_.narrow(0, p->offset, p->numel).view(p->local_shape);
    p->weight = weights_.narrow(0, p->offset, p->numel).view(p->local_shape);
    if (with_gradients) p->gradient = gradients_.narrow(0, p->offset, p->numel).view(p->local_shape);
    p->listener = &listener_;
  }
}

void ParameterStore::initialize(uint64_t seed, bool all_random, const std::vector<std::string>& only) {
  for (auto& p : parameters_) {
    if (!only.empty() && std::find(only.begin(), only.end(), p->name) == only.end()) continue;
    at::Tensor values = at::empty(p->local_shape, at::TensorOptions().dtype(masters_.scalar_type()));
    if (values.scalar_type() == at::kDouble) fill_values(*p, seed, all_random, values.mutable_data_ptr<double>());
    else fill_values(*p, seed, all_random, values.mutable_data_ptr<float>());
    p->master.copy_(values);
  }
  refresh_weights();
}

void ParameterStore::zero_gradients() { gradients_.zero_(); }

void ParameterStore::refresh_weights() {
  if (low_precision()) weights_.copy_(masters_);
}

}  // namespace plait
