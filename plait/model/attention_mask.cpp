#include "plait/model/attention_mask.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "plait/model/attention.h"

namespace plait {

namespace {

// As large as the type allows without meeting infinity when a score is added.
double hidden_score(at::ScalarType type) { return type == at::kHalf ? -6.0e4 : -1.0e30; }

// Place of segment `index` of a run inside its row: documents of a packed row start later than the row.
int64_t place_in_row(const MicroBatch& batch, int64_t token) {
  auto after = std::upper_bound(batch.row_offsets.begin(), batch.row_offsets.end(), token);
  return token - *(after - 1);
}

}  // namespace

at::Tensor attention_mask(const SegmentRun& run, const AttentionOptions& o, const MicroBatch& batch, const at::Tensor& like, bool full,
                          bool* plain_causal) {
  bool window = o.window > 0 && o.window < run.length;
  at::Tensor keys;
  if (batch.key_mask.defined()) {
    keys = batch.key_mask.narrow(0, run.begin, run.count * run.length);
    if (keys.all().item<bool>()) keys = at::Tensor();
  }
  *plain_causal = o.causal && !window && !keys.defined() && !full;
  if (*plain_causal || (!o.causal && !window && !keys.defined())) return {};
  auto type = like.scalar_type() == at::kDouble ? at::kDouble : full ? at::kFloat : like.scalar_type();
  at::Tensor place = at::arange(run.length, like.options().dtype(at::kLong));
  at::Tensor distance = place.unsqueeze(1) - place.unsqueeze(0);  // query - key
  at::Tensor hidden = o.causal ? distance.lt(0) : at::zeros({run.length, run.length}, like.options().dtype(at::kBool));
  if (window) hidden = hidden.logical_or(distance.ge(o.window));
  if (window && !o.causal) hidden = hidden.logical_or(distance.le(-o.window));
  hidden = hidden.view({1, 1, run.length, run.length});
  if (keys.defined()) hidden = hidden.logical_or(keys.logical_not().view({run.count, 1, 1, run.length}));
  return at::zeros(hidden.sizes(), like.options().dtype(type)).masked_fill_(hidden, hidden_score(type));
}

at::Tensor attention_dropout_mask(const SegmentRun& run, const AttentionOptions& o, const ForwardContext& context,
                                  const at::Tensor& probabilities) {
  at::Tensor keep = at::empty(probabilities.sizes(), probabilities.options());
  auto keys = site_keys(context.token_keys, o.layer, DropoutSite::kAttentionProbabilities);
  for (int64_t i = 0; i < run.count; ++i) {
    int64_t first = run.begin + i * run.length;
    dropout_mask_attention(keep[i], keys.data() + first, o.dropout, o.first_head, place_in_row(context.batch, first));
  }
  return keep;
}

}  // namespace plait
