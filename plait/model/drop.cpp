#include "plait/model/drop.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace plait {

at::Tensor drop_rows(const at::Tensor& x, double p, int64_t layer, DropoutSite site, const ForwardContext& context,
                     const TensorParallelContext& parallel) {
  if (!context.training || p == 0.0) return x;
  int64_t tokens = context.batch.num_tokens(), begin = 0;
  if (parallel.sequence_parallel) begin = std::min(tokens, x.size(0) * parallel.rank());
  Span own{begin, std::min(x.size(0), tokens - begin)};
  auto keys = site_keys(context.token_keys, layer, site, own);
  keys.resize(static_cast<size_t>(x.size(0)));  // rows that only fill up the last ranks
  return dropout_rows(x, keys, p);
}

at::Tensor drop_pooled(const at::Tensor& x, double p, const ForwardContext& context) {
  if (!context.training || p == 0.0) return x;
  return dropout_rows(x, site_keys(context.sample_keys, 0, DropoutSite::kHead), p);
}

}  // namespace plait
