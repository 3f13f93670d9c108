// StageModel: what one virtual pipeline stage computes: embedding (first stage), a run of blocks, head and loss (last stage).
// Rank rule: the ranks of a tensor group build the same stages in the same order and call them with the same micro-batches.
// Letters: T tokens, B rows, H hidden, C classes.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/model/block.h"

namespace plait {

struct StageSpec {
  int64_t stage_index = 0;  // virtual stage
  int64_t num_stages = 1;   // virtual stages in all
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  bool has_embedding() const { return stage_index == 0; }
  bool has_head() const { return stage_index == num_stages - 1; }
};

struct HeadOptions {
  Task task = Task::kTextGeneration;
  int64_t num_labels = 0;  // C, classification
  double label_smoothing = 0.0;
};

struct StageOutput {
  at::Tensor hidden;    // to the next stage; undefined on the last
  at::Tensor loss_sum;  // last stage with targets: scalar, sum over the targets, fp32 (fp64)
  at::Tensor logits;    // classification on the last stage: [B, C], fp32 (fp64), no graph
};

class StageModel {
 public:
  // `word_embedding`: the table already declared on this rank (tied head on the same rank), or null.
  StageModel(ParameterStore& store, const ModelShape& shape, const StageSpec& spec, const HeadOptions& head,
             const TensorParallelContext& context, Parameter* word_embedding);
  void bind();  // after store.allocate()

  // hidden: output of the stage before, [T, H] ([t, H] under sequence parallelism); ignored on the first stage.
  StageOutput forward(const at::Tensor& hidden, const ForwardContext& context) const;

  const StageSpec& spec() const { return spec_; }
  Parameter* word_embedding() const { return word_embedding_; }
  // Rows that this stage sends or receives for a micro-batch: [rows, H].
  int64_t border_rows(const MicroBatch& batch) const { return context_.local_rows(batch.num_tokens()); }

 private:
  void declare_embedding(ParameterStore& store);
  void declare_head(ParameterStore& store, Parameter* word_embedding);
  at::Tensor embed(const ForwardContext& context) const;
  StageOutput classify(const at::Tensor& hidden, const ForwardContext& context) const;
  at::Tensor language_loss(const at::Tensor& hidden, const ForwardContext& context) const;

  ModelShape shape_;
  StageSpec spec_;
  HeadOptions head_;
  TensorParallelContext context_;
  at::Tensor anchor_;  // makes autograd record the embedding
  Parameter *word_embedding_ = nullptr, *position_embedding_ = nullptr, *token_type_embedding_ = nullptr;
  NormWeights embedding_norm_, final_norm_;
  std::vector<std::unique_ptr<Block>> blocks_;
  Parameter *head_weight_ = nullptr, *pooler_weight_ = nullptr, *pooler_bias_ = nullptr, *classifier_weight_ = nullptr,
            *classifier_bias_ = nullptr;
  LinearWeights head_weights_, pooler_weights_, classifier_weights_;
};

struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
};
// Every tensor of the whole model as Hugging Face stores it, tied ones once; no memory is allocated.
std::vector<ModelTensor> model_tensors(const ModelShape& shape, const HeadOptions& head);

}  // namespace plait
