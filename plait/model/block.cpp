#include "plait/model/block.h"

#include <ATen/ATen.h>

#include <cmath>

#include "plait/base/error.h"
#include "plait/model/activation.h"
#include "plait/model/drop.h"
#include "plait/model/residual.h"
#include "plait/plan/partition.h"

namespace plait {

namespace {

// Rows of `heads` heads of size D that this rank owns, when `total` heads are split over the ranks or, if there are fewer heads than ranks,
// copied to neighbouring ranks.
struct HeadShare {
  int64_t first = 0, count = 0, replicas = 1;
};

HeadShare share_heads(int64_t total, const TensorParallelContext& c) {
  if (total % c.size() == 0) return {c.rank() * (total / c.size()), total / c.size(), 1};
  PLAIT_CHECK(c.size() % total == 0, total, " heads on ", c.size(), " tensor ranks");
  int64_t replicas = c.size() / total;
  return {c.rank() / replicas, 1, replicas};
}

Parameter head_parameter(const std::string& name, const HeadShare& share, int64_t total_heads, int64_t head_size, int64_t columns,
                         const TensorParallelContext& c) {
  Parameter p;
  p.name = name;
  p.global_shape = {total_heads * head_size};
  p.local_shape = {share.count * head_size};
  if (columns > 0) {
    p.global_shape.push_back(columns);
    p.local_shape.push_back(columns);
  }
  p.shard_axis = 0;
  p.pieces = {{0, share.first * head_size, share.count * head_size}};
  p.kv_replicas = share.replicas;
  p.kv_shards = c.size() / share.replicas;
  p.owner = p.counts_in_norm = c.rank() % share.replicas == 0;
  return p;
}

}  // namespace

NormWeights declare_norm_parameters(ParameterStore& store, const std::string& name, const ModelShape& shape,
                                    const TensorParallelContext& context) {
  auto vector = [&](const char* suffix, InitKind init) {
    Parameter p = shard_parameter(name + suffix, {shape.hidden_size}, -1, context);
    p.decay = false;
    p.partial_over_tp = context.sequence_parallel;
    p.init = init;
    return &store.declare(std::move(p));
  };
  NormWeights w;
  w.eps = shape.norm_eps;
  w.weight = vector(".weight", InitKind::kOnes);
  if (!shape.rms_norm) w.bias = vector(".bias", InitKind::kZeros);
  return w;
}

Block::Block(ParameterStore& store, const ModelShape& shape, int64_t layer, const TensorParallelContext& context)
    : shape_(shape), layer_(layer), context_(context) {
  const BlockNames& names = family_names(shape.family).block;
  declare_attention(store);
  norm1_ = declare_norm_parameters(store, layer_name(names.norm1, layer), shape, context);
  declare_ffn(store);
  norm2_ = declare_norm_parameters(store, layer_name(names.norm2, layer), shape, context);
}

Parameter* Block::declare_vector(ParameterStore& store, Parameter parameter, InitKind init) {
  parameter.decay = false;
  parameter.init = init;
  return &store.declare(std::move(parameter));
}

// One file tensor q | k | v: this rank's rows of each third lie behind each other.
void Block::declare_fused_qkv(ParameterStore& store) {
  const FamilyNames& family = family_names(shape_.family);
  const int64_t d = shape_.head_size, heads = shape_.num_heads;
  const HeadShare q = share_heads(heads, context_);
  auto fused = [&](const char* suffix, int64_t columns) {
    Parameter p = head_parameter(layer_name(family.block.fused_qkv, layer_) + suffix, q, heads, d, columns, context_);
    int64_t rows = q.count * d;
    p.global_shape[0] = 3 * heads * d;
    p.local_shape[0] = 3 * rows;
    p.pieces = {{0, q.first * d, rows}, {rows, (heads + q.first) * d, rows}, {2 * rows, (2 * heads + q.first) * d, rows}};
    p.init_std = shape_.initializer_range;
    if (columns > 0 && family.transposed_linears) {
      p.transposed = true;
      std::swap(p.global_shape[0], p.global_shape[1]);
    }
    return p;
  };
  qkv_ = {&store.declare(fused(".weight", shape_.hidden_size))};
  if (shape_.qkv_bias) qkv_bias_ = {declare_vector(store, fused(".bias", 0), InitKind::kZeros)};
}

void Block::declare_split_qkv(ParameterStore& store) {
  const BlockNames& names = family_names(shape_.family).block;
  const HeadShare q = share_heads(shape_.num_heads, context_), kv = share_heads(shape_.num_kv_heads, context_);
  auto declare_heads = [&](const std::string& name, const HeadShare& share, int64_t heads, int64_t columns, bool follows) {
    Parameter p = head_parameter(name, share, heads, shape_.head_size, columns, context_);
    p.init_std = shape_.initializer_range;
    p.follows_previous = follows;
    if (columns > 0) return &store.declare(std::move(p));
    return declare_vector(store, std::move(p), InitKind::kZeros);
  };
  auto declare_all = [&](const char* suffix, int64_t columns) -> std::vector<Parameter*> {
    return {declare_heads(layer_name(names.query, layer_) + suffix, q, shape_.num_heads, columns, false),
            declare_heads(layer_name(names.key, layer_) + suffix, kv, shape_.num_kv_heads, columns, true),
            declare_heads(layer_name(names.value, layer_) + suffix, kv, shape_.num_kv_heads, columns, true)};
  };
  qkv_ = declare_all(".weight", shape_.hidden_size);
  if (shape_.qkv_bias) qkv_bias_ = declare_all(".bias", 0);
}

void Block::declare_attention(ParameterStore& store) {
  const FamilyNames& family = family_names(shape_.family);
  int64_t d = shape_.head_size, h = shape_.hidden_size;
  HeadShare q = share_heads(shape_.num_heads, context_), kv = share_heads(shape_.num_kv_heads, context_);
  attention_ = {q.count,
                kv.count,
                d,
                q.first,
                layer_,
                shape_.attention_scale.value_or(1.0 / std::sqrt(static_cast<double>(d))),
                shape_.causal,
                0,
                shape_.rotary,
                shape_.attention_dropout};
  if (shape_.sliding_window && layer_ >= shape_.sliding_window_first_layer) attention_.window = *shape_.sliding_window;
  if (family.block.fused_qkv.empty()) declare_split_qkv(store);
  else declare_fused_qkv(store);

  std::string out = layer_name(family.block.attention_out, layer_);
  Parameter weight = shard_parameter(out + ".weight", {h, shape_.num_heads * d}, 1, context_);
  weight.init_std = shape_.initializer_range;
  if (family.scaled_residual_init) weight.init_std /= std::sqrt(2.0 * static_cast<double>(shape_.num_layers));
  if (family.transposed_linears) {
    weight.transposed = true;
    std::swap(weight.global_shape[0], weight.global_shape[1]);
  }
  out_ = {&store.declare(std::move(weight))};
  if (shape_.attention_out_bias) {
    Parameter bias = shard_parameter(out + ".bias", {h}, -1, context_);
    bias.partial_over_tp = context_.sequence_parallel;
    out_bias_ = {declare_vector(store, std::move(bias), InitKind::kZeros)};
  }
}

void Block::declare_ffn(ParameterStore& store) {
  const FamilyNames& family = family_names(shape_.family);
  const BlockNames& names = family.block;
  int64_t h = shape_.hidden_size, f = shape_.ffn_size;
  auto matrix = [&](const std::string& name, std::vector<int64_t> shape, int64_t axis, bool follows, bool residual) {
    Parameter p = shard_parameter(name + ".weight", std::move(shape), axis, context_);
    p.init_std = shape_.initializer_range;
    if (residual && family.scaled_residual_init) p.init_std /= std::sqrt(2.0 * static_cast<double>(shape_.num_layers));
    p.follows_previous = follows;
    if (family.transposed_linears) {
      p.transposed = true;
      std::swap(p.global_shape[0], p.global_shape[1]);
    }
    return &store.declare(std::move(p));
  };
  auto split_bias = [&](const std::string& name, bool follows) {
    Parameter p = shard_parameter(name + ".bias", {f}, 0, context_);
    p.follows_previous = follows;
    return declare_vector(store, std::move(p), InitKind::kZeros);
  };
  std::string gate = layer_name(names.gate, layer_), up = layer_name(names.up, layer_), down = layer_name(names.down, layer_);
  if (shape_.gated_ffn) up_.push_back(matrix(gate, {f, h}, 0, false, false));
  up_.push_back(matrix(up, {f, h}, 0, shape_.gated_ffn, false));
  if (shape_.ffn_bias) {
    if (shape_.gated_ffn) up_bias_.push_back(split_bias(gate, false));
    up_bias_.push_back(split_bias(up, shape_.gated_ffn));
  }
  down_ = {matrix(down, {h, f}, 1, false, true)};
  if (shape_.ffn_bias) {
    Parameter bias = shard_parameter(down + ".bias", {h}, -1, context_);
    bias.partial_over_tp = context_.sequence_parallel;
    down_bias_ = {declare_vector(store, std::move(bias), InitKind::kZeros)};
  }
}

void Block::bind() {
  qkv_weights_ = LinearWeights(qkv_, qkv_bias_);
  out_weights_ = LinearWeights(out_, out_bias_);
  up_weights_ = LinearWeights(up_, up_bias_);
  down_weights_ = LinearWeights(down_, down_bias_);
}

at::Tensor Block::attention_part(const at::Tensor& x, const ForwardContext& context) const {
  at::Tensor qkv = parallel_linear(x, qkv_weights_, LinearMode::kColumn, context_);
  int64_t tokens = context.batch.num_tokens(), padded = qkv.size(0);
  if (padded != tokens) qkv = qkv.narrow(0, 0, tokens);
  at::Tensor mixed = attention(qkv, attention_, context);
  if (padded != tokens) mixed = at::constant_pad_nd(mixed, {0, 0, 0, padded - tokens});
  at::Tensor y = parallel_linear(mixed, out_weights_, LinearMode::kRow, context_);
  return drop_rows(y, shape_.hidden_dropout, layer_, DropoutSite::kAttentionOutput, context, context_);
}

at::Tensor Block::ffn_part(const at::Tensor& x, const ForwardContext& context) const {
  at::Tensor up = parallel_linear(x, up_weights_, LinearMode::kColumn, context_);
  at::Tensor y = parallel_linear(activate(up, shape_.activation, shape_.gated_ffn), down_weights_, LinearMode::kRow, context_);
  return drop_rows(y, shape_.hidden_dropout, layer_, DropoutSite::kMlpOutput, context, context_);
}

at::Tensor Block::forward(const at::Tensor& hidden, const ForwardContext& context, const at::Tensor& result) const {
  if (shape_.pre_norm) {
    at::Tensor x = hidden + attention_part(norm_rows(hidden, norm1_), context);
    return residual_sum(x, ffn_part(norm_rows(x, norm2_), context), result);
  }
  at::Tensor x = norm_rows(hidden + attention_part(hidden, context), norm1_);
  return norm_rows(x + ffn_part(x, context), norm2_);
}

}  // namespace plait
