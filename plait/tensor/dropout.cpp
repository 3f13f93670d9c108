#include "plait/tensor/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <type_traits>

#include "plait/base/error.h"
#include "plait/base/random.h"
#include "plait/tensor/parallel.h"

namespace plait {
namespace {

void check_probability(double p) {
  if (!(p >= 0.0 && p < 1.0)) throw_error(ExitCode::kUsage, "dropout ", p, " is not in [0, 1)");
}

// An element is dropped when its 32 random bits are below this.
uint32_t drop_threshold(double p) { return static_cast<uint32_t>(std::min(4294967295.0, std::nearbyint(p * 4294967296.0))); }

// Calls put(i, kept) for columns [first, first + n) under `key`. One mix64 serves two neighbouring columns: 2k the low half, 2k + 1 the
// high half; an odd first column starts with the high half of the pair before it.
template <class Put>
inline void draw_run(uint64_t key, int64_t first, int64_t n, uint32_t threshold, const Put& put) {
  int64_t i = 0;
  uint64_t pair = static_cast<uint64_t>(first) >> 1;
  if ((first & 1) && n > 0) {
    put(0, static_cast<uint32_t>(mix64(key + pair) >> 32) >= threshold);
    ++pair;
    i = 1;
  }
  for (; i + 1 < n; i += 2, ++pair) {
    uint64_t bits = mix64(key + pair);
    put(i, static_cast<uint32_t>(bits) >= threshold);
    put(i + 1, static_cast<uint32_t>(bits >> 32) >= threshold);
  }
  if (i < n) put(i, static_cast<uint32_t>(mix64(key + pair)) >= threshold);
}

template <class T>
void drop_rows(const T* x, T* y, const int64_t* keys, int64_t rows, int64_t columns, double p, int64_t first_channel) {
  using Math = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const uint32_t threshold = drop_threshold(p);
  const Math scale = static_cast<Math>(1.0 / (1.0 - p));
  parallel_ranges(0, rows, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, columns)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x + r * columns;
      T* out = y + r * columns;
      draw_run(static_cast<uint64_t>(keys[r]), first_channel, columns, threshold, [&](int64_t i, bool kept) {
        // Selected, not multiplied by 0: a dropped infinity is 0, in forward and backward alike.
        out[i] = kept ? static_cast<T>(static_cast<Math>(in[i]) * scale) : T(0);
      });
    }
  });
}

at::Tensor apply_rows(const at::Tensor& x, const at::Tensor& keys, double p, int64_t first_channel) {
  at::Tensor in = x.to(at::kCPU).contiguous();
  at::Tensor out = at::empty_like(in);
  const int64_t rows = keys.numel(), columns = rows == 0 ? 0 : in.numel() / rows;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, in.scalar_type(), "dropout_rows", [&] {
    drop_rows(in.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), keys.data_ptr<int64_t>(), rows, columns, p, first_channel);
  });
  return out.to(x.device());
}

struct DropoutRows : torch::autograd::Function<DropoutRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& keys, double p,
                            int64_t first_channel) {
    context->saved_data["keys"] = keys;
    context->saved_data["p"] = p;
    context->saved_data["first_channel"] = first_channel;
    return apply_rows(x, keys, p, first_channel);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    return {apply_rows(gradients[0], context->saved_data["keys"].toTensor(), context->saved_data["p"].toDouble(),
                       context->saved_data["first_channel"].toInt()),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Chained from a constant: fold_key(mix64(a), b) would be the same for (a, b) and (b, a).
uint64_t chain(std::initializer_list<uint64_t> coordinates) {
  uint64_t key = 0x706c616974ull;
  for (uint64_t coordinate : coordinates) key = fold_key(key, coordinate);
  return key;
}

}  // namespace

std::vector<uint64_t> sample_keys(uint64_t seed, uint64_t step, const MicroBatch& batch) {
  const uint64_t step_key = chain({seed, step});
  std::vector<uint64_t> keys;
  keys.reserve(batch.sample_ids.size());
  for (int64_t id : batch.sample_ids) keys.push_back(fold_key(fold_key(step_key, static_cast<uint64_t>(id)), 0));
  return keys;
}

std::vector<uint64_t> token_keys(uint64_t seed, uint64_t step, const MicroBatch& batch) {
  const uint64_t step_key = chain({seed, step});
  std::vector<uint64_t> keys;
  keys.reserve(static_cast<size_t>(batch.num_tokens()));
  for (size_t row = 0; row < batch.sample_ids.size(); ++row) {
    const uint64_t sample_key = fold_key(step_key, static_cast<uint64_t>(batch.sample_ids[row]));
    const int64_t length = batch.row_offsets[row + 1] - batch.row_offsets[row];
    for (int64_t position = 0; position < length; ++position) keys.push_back(fold_key(sample_key, static_cast<uint64_t>(position)));
  }
  return keys;
}

std::vector<uint64_t> site_keys(const std::vector<uint64_t>& keys, int64_t layer, DropoutSite site, Span rows) {
  PLAIT_CHECK(rows.begin >= 0 && rows.end() <= static_cast<int64_t>(keys.size()), "rows ", rows.begin, "..", rows.end(), " of ",
              keys.size());
  const uint64_t place = chain({static_cast<uint64_t>(layer), static_cast<uint64_t>(site)});
  std::vector<uint64_t> result;
  result.reserve(static_cast<size_t>(rows.size));
  for (int64_t i = rows.begin; i < rows.end(); ++i) result.push_back(fold_key(keys[static_cast<size_t>(i)], place));
  return result;
}

std::vector<uint64_t> site_keys(const std::vector<uint64_t>& keys, int64_t layer, DropoutSite site) {
  return site_keys(keys, layer, site, {0, static_cast<int64_t>(keys.size())});
}

std::vector<uint64_t> row_keys(uint64_t seed, uint64_t step, const MicroBatch& batch, int64_t layer, DropoutSite site) {
  return site_keys(token_keys(seed, step, batch), layer, site);
}

at::Tensor dropout_rows(const at::Tensor& x, const std::vector<uint64_t>& keys, double p, int64_t first_channel) {
  check_probability(p);
  if (p == 0.0) return x;
  PLAIT_CHECK(x.dim() >= 1 && x.size(0) == static_cast<int64_t>(keys.size()), "dropout_rows: ", keys.size(), " keys");
  at::Tensor key_tensor = at::empty({x.size(0)}, at::kLong);
  std::copy(keys.begin(), keys.end(), key_tensor.data_ptr<int64_t>());
  return DropoutRows::apply(x, key_tensor, p, first_channel);
}

void dropout_mask_attention(at::Tensor mask_out, const uint64_t* query_keys, double p, int64_t first_head, int64_t first_key) {
  check_probability(p);
  PLAIT_CHECK(mask_out.dim() == 3 && mask_out.is_contiguous() && mask_out.is_cpu(), "dropout_mask_attention: mask of another form");
  const int64_t heads = mask_out.size(0), queries = mask_out.size(1), columns = mask_out.size(2);
  const uint32_t threshold = drop_threshold(p);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, mask_out.scalar_type(), "dropout_mask_attention", [&] {
    scalar_t* mask = mask_out.data_ptr<scalar_t>();
    const scalar_t kept_value = static_cast<scalar_t>(1.0 / (1.0 - p));
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t q = 0; q < queries; ++q) {
        scalar_t* out = mask + (h * queries + q) * columns;
        draw_run(fold_key(query_keys[q], static_cast<uint64_t>(first_head + h)), first_key, columns, threshold,
                 [&](int64_t i, bool kept) { out[i] = kept ? kept_value : scalar_t(0); });
      }
  });
}

}  // namespace plait
