#include "plait/train/flops.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "plait/data/micro_batches.h"
#include "plait/tensor/matrix_product.h"

namespace plait {

namespace {

// Pairs of query and key in a segment of `length` tokens.
double attention_pairs(const ModelShape& shape, int64_t layer, int64_t length) {
  auto n = static_cast<double>(length);
  if (!shape.causal) return n * n;
  if (!shape.sliding_window || layer < shape.sliding_window_first_layer || length <= *shape.sliding_window) return n * (n + 1) / 2;
  auto w = static_cast<double>(*shape.sliding_window);
  return w * (w + 1) / 2 + (n - w) * w;
}

double layer_weights(const ModelShape& s) {
  auto attention = s.hidden_size * s.head_size * (2 * s.num_heads + 2 * s.num_kv_heads);
  return static_cast<double>(attention) + static_cast<double>((s.gated_ffn ? 3 : 2) * s.hidden_size * s.ffn_size);
}

// Lengths of a row's documents, in the first `end` tokens.
std::vector<int64_t> segments_of(const TokenRow& row, int64_t end) {
  std::vector<int64_t> lengths;
  int64_t begin = 0;
  for (int32_t start : row.document_starts) {
    if (start >= end) break;
    lengths.push_back(start - begin);
    begin = start;
  }
  lengths.push_back(end - begin);
  return lengths;
}

double steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

double step_flops(const ModelShape& shape, const HeadOptions& head, const Dataset& rows, std::span<const int64_t> row_ids) {
  const bool classification = head.task == Task::kTextClassification;
  double products = 0, pairs = 0;
  for (int64_t id : row_ids) {
    TokenRow row = rows.row(id);
    const int64_t num_tokens = count_kept_tokens(row, head.task);
    products += static_cast<double>(num_tokens * shape.num_layers) * layer_weights(shape);
    if (classification) products += static_cast<double>(shape.hidden_size * (shape.hidden_size + head.num_labels));
    else products += static_cast<double>(count_targets(row, head.task)) * static_cast<double>(shape.vocab_size * shape.hidden_size);
    for (int64_t length : segments_of(row, num_tokens))
      for (int64_t layer = 0; layer < shape.num_layers; ++layer) pairs += attention_pairs(shape, layer, length);
  }
  return 6 * products + 12 * static_cast<double>(shape.num_heads * shape.head_size) * pairs;
}

double measure_matrix_rate(const Mesh& mesh, at::Device device, at::ScalarType type, const std::function<double()>& seconds) {
  const std::function<double()> now = seconds ? seconds : steady_seconds;
  at::NoGradGuard no_grad;
  const int64_t size = device.is_cpu() ? 1024 : 8192;
  const int products = device.is_cpu() ? 1 : 20;  // between two looks at the clock
  auto options = at::TensorOptions().dtype(type).device(device);
  at::Tensor a = at::full({size, size}, 0.5, options), b = at::full({size, size}, 0.25, options), c = at::empty({size, size}, options);
  auto multiply = [&](bool own) {
    for (int i = 0; i < products; ++i) {
      if (own) matrix_product_into(c, a, b);
      else at::mm_out(c, a, b);
    }
    if (!device.is_cpu()) c[0][0].item();  // until they are done
  };
  for (bool own : {false, true}) multiply(own);  // buffers, and kernels that are made on first use
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) * products;
  at::Tensor rates = at::zeros({4}, at::kDouble);
  for (int64_t window = 0; window < rates.numel(); ++window) {
    mesh.world().barrier();
    const double begin = now();
    double end = begin;
    int64_t done = 0;
    while (end - begin < 0.1) {
      multiply(window % 2 == 1);
      ++done;
      end = now();
    }
    rates[window] = static_cast<double>(done) * flops / (end - begin);
  }
  rates = rates.to(device);
  mesh.world().all_reduce(rates)->wait();
  return rates.max().item<double>();
}

}  // namespace plait
