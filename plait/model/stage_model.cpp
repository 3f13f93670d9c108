#include "plait/model/stage_model.h"

#include <ATen/ATen.h>

#include "plait/base/error.h"
#include "plait/comm/autograd.h"
#include "plait/model/drop.h"
#include "plait/tensor_parallel/cross_entropy.h"
#include "plait/tensor_parallel/embedding.h"

namespace plait {

namespace {

at::ScalarType loss_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor index_tensor(const std::vector<int64_t>& values, size_t count, at::Device device) {
  at::Tensor index = at::empty({static_cast<int64_t>(count)}, at::kLong);
  std::copy_n(values.begin(), count, index.mutable_data_ptr<int64_t>());
  return index.to(device);
}

}  // namespace

StageModel::StageModel(ParameterStore& store, const ModelShape& shape, const StageSpec& spec, const HeadOptions& head,
                       const TensorParallelContext& context, Parameter* word_embedding)
    : shape_(shape), spec_(spec), head_(head), context_(context) {
  size_t before = store.parameters().size();
  if (spec.has_embedding()) declare_embedding(store);
  for (int64_t i = 0; i < spec.num_layers; ++i) blocks_.push_back(std::make_unique<Block>(store, shape, spec.first_layer + i, context));
  if (spec.has_head()) declare_head(store, word_embedding ? word_embedding : word_embedding_);
  for (size_t i = before; i < store.parameters().size(); ++i)
    if (store.parameters()[i]->owner_stages.empty()) store.parameters()[i]->owner_stages = {spec.stage_index};
}

void StageModel::declare_embedding(ParameterStore& store) {
  const FamilyNames& names = family_names(shape_.family);
  auto table = [&](const std::string& name, int64_t rows, int64_t axis) {
    Parameter p = shard_parameter(name, {rows, shape_.hidden_size}, axis, context_);
    p.init_std = shape_.initializer_range;
    p.partial_over_tp = axis < 0 && context_.sequence_parallel;
    return p;
  };
  Parameter words = table(names.word_embedding, shape_.vocab_size, 0);
  if (shape_.tied_embeddings && head_.task == Task::kTextGeneration) words.owner_stages = {0, spec_.num_stages - 1};
  words.tied_across_stages = words.owner_stages.size() == 2 && !spec_.has_head();
  word_embedding_ = &store.declare(std::move(words));
  if (!shape_.rotary) position_embedding_ = &store.declare(table(names.position_embedding, shape_.max_positions, -1));
  if (shape_.type_vocab_size > 0) token_type_embedding_ = &store.declare(table(names.token_type_embedding, shape_.type_vocab_size, -1));
  if (!names.embedding_norm.empty()) embedding_norm_ = declare_norm_parameters(store, names.embedding_norm, shape_, context_);
}

void StageModel::declare_head(ParameterStore& store, Parameter* word_embedding) {
  const FamilyNames& names = family_names(shape_.family);
  auto replicated = [&](const std::string& name, std::vector<int64_t> shape) {
    Parameter p = shard_parameter(name, std::move(shape), -1, context_);
    p.init_std = shape_.initializer_range;
    if (p.global_shape.size() == 1) {
      p.decay = false;
      p.init = InitKind::kZeros;
    }
    return &store.declare(std::move(p));
  };
  if (head_.task == Task::kTextClassification) {
    PLAIT_CHECK(!names.classifier.empty() && head_.num_labels > 0, "classification head of ", shape_.model_type);
    pooler_weight_ = replicated(names.pooler + ".weight", {shape_.hidden_size, shape_.hidden_size});
    pooler_bias_ = replicated(names.pooler + ".bias", {shape_.hidden_size});
    classifier_weight_ = replicated(names.classifier + ".weight", {head_.num_labels, shape_.hidden_size});
    classifier_bias_ = replicated(names.classifier + ".bias", {head_.num_labels});
    return;
  }
  PLAIT_CHECK(!names.head.empty(), "language head of ", shape_.model_type);
  if (!names.final_norm.empty()) final_norm_ = declare_norm_parameters(store, names.final_norm, shape_, context_);
  if (!shape_.tied_embeddings) {
    Parameter p = shard_parameter(names.head, {shape_.vocab_size, shape_.hidden_size}, 0, context_);
    p.init_std = shape_.initializer_range;
    head_weight_ = &store.declare(std::move(p));
  } else if (word_embedding) {
    head_weight_ = word_embedding;
    word_embedding->tied_across_stages = false;
  } else {
    // The copy of the tied table on the last stage: the first stage's counts and is written.
    Parameter p = shard_parameter(names.word_embedding, {shape_.vocab_size, shape_.hidden_size}, 0, context_);
    p.init_std = shape_.initializer_range;
    p.owner_stages = {0, spec_.num_stages - 1};
    p.tied_across_stages = true;
    p.owner = p.counts_in_norm = false;
    head_weight_ = &store.declare(std::move(p));
  }
}

void StageModel::bind() {
  for (auto& block : blocks_) block->bind();
  if (head_weight_) head_weights_ = LinearWeights({head_weight_}, {});
  if (pooler_weight_) {
    pooler_weights_ = LinearWeights({pooler_weight_}, {pooler_bias_});
    classifier_weights_ = LinearWeights({classifier_weight_}, {classifier_bias_});
  }
  if (word_embedding_) {
    anchor_ = at::zeros({1}, word_embedding_->weight.options());
    anchor_.requires_grad_(true);
  }
}

at::Tensor StageModel::embed(const ForwardContext& context) const {
  const MicroBatch& batch = context.batch;
  int64_t frozen = shape_.pad_row_frozen ? shape_.pad_token_id.value_or(-1) : -1;
  at::Tensor x = vocab_parallel_embedding(anchor_, batch.input_ids, *word_embedding_, frozen, context_);
  if (position_embedding_) x = x + replicated_embedding(anchor_, own_rows(batch.positions, -1, context_), *position_embedding_);
  if (token_type_embedding_) {
    at::Tensor types = batch.token_types.defined() ? batch.token_types : at::zeros_like(batch.input_ids);
    x = x + replicated_embedding(anchor_, own_rows(types, -1, context_), *token_type_embedding_);
  }
  if (embedding_norm_.weight) x = norm_rows(x, embedding_norm_);
  return drop_rows(x, shape_.embedding_dropout, 0, DropoutSite::kEmbedding, context, context_);
}

StageOutput StageModel::classify(const at::Tensor& hidden, const ForwardContext& context) const {
  const MicroBatch& batch = context.batch;
  at::Tensor x = hidden;
  if (context_.sequence_parallel && context_.size() > 1) x = gather_rows(x, *context_.group, /*replicated_use=*/true);
  auto rows = static_cast<size_t>(batch.num_rows());
  at::Tensor first = x.index_select(0, index_tensor(batch.row_offsets, rows, x.device()));
  at::Tensor pooled = at::tanh(parallel_linear(first, pooler_weights_, LinearMode::kReplicated, context_));
  pooled = drop_pooled(pooled, shape_.classifier_dropout, context);
  at::Tensor logits = parallel_linear(pooled, classifier_weights_, LinearMode::kReplicated, context_);
  logits = logits.to(loss_type(logits));
  StageOutput out;
  out.logits = logits.detach();
  if (batch.targets.defined())
    out.loss_sum = at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum, kIgnoredTarget, head_.label_smoothing);
  return out;
}

at::Tensor StageModel::language_loss(const at::Tensor& hidden, const ForwardContext& context) const {
  const MicroBatch& batch = context.batch;
  at::Tensor x = norm_rows(hidden, final_norm_);
  at::Tensor kept = batch.targets.ne(kIgnoredTarget).nonzero().flatten();
  if (kept.numel() == 0) return (x * 0).sum().to(loss_type(x));  // keeps the graph: every rank runs its backward
  LinearMode mode = LinearMode::kColumn;
  TensorParallelContext head_context = context_;
  if (context_.sequence_parallel && context_.size() > 1) {
    x = gather_rows(x, *context_.group, /*replicated_use=*/false);
    mode = LinearMode::kColumnLocal;
  }
  head_context.sequence_parallel = false;
  if (kept.numel() != x.size(0)) x = select_rows(x, kept);
  at::Tensor logits = parallel_linear(x, head_weights_, mode, head_context);
  at::Tensor targets = batch.targets.index_select(0, kept);
  return vocab_parallel_cross_entropy(logits, targets, shape_.vocab_size, head_.label_smoothing, context_, LogitsUse::kConsumed).sum();
}

StageOutput StageModel::forward(const at::Tensor& hidden, const ForwardContext& context) const {
  at::Tensor x = spec_.has_embedding() ? embed(context) : hidden;
  for (const auto& block : blocks_) x = block->forward(x, context, block == blocks_.back() ? context.result : at::Tensor());
  if (!spec_.has_head()) return {x, {}, {}};
  if (head_.task == Task::kTextClassification) return classify(x, context);
  return {{}, language_loss(x, context), {}};
}

std::vector<ModelTensor> model_tensors(const ModelShape& shape, const HeadOptions& head) {
  ParameterStore store;
  StageModel whole(store, shape, StageSpec{0, 1, 0, shape.num_layers}, head, TensorParallelContext{}, nullptr);
  std::vector<ModelTensor> tensors;
  for (const auto& p : store.parameters()) tensors.push_back({p->name, p->global_shape});
  return tensors;
}

}  // namespace plait
