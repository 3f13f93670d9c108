// Block: one transformer layer of any family, pre- or post-norm, tensor parallel. The families differ by ModelShape and names only.
// Rank rule: all ranks of the tensor group build and call the same blocks in the same order.
// Letters: T tokens, H hidden; n, g local heads, D head size, f local FFN width.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "plait/config/model_shape.h"
#include "plait/model/attention.h"
#include "plait/model/family.h"
#include "plait/model/norm.h"
#include "plait/tensor_parallel/linear.h"

namespace plait {

class Block {
 public:
  // Declares the layer's parameters (order: qkv, attention output, norms, FFN).
  Block(ParameterStore& store, const ModelShape& shape, int64_t layer, const TensorParallelContext& context);
  void bind();  // after store.allocate()

  // hidden [T, H] ([t, H] under sequence parallelism) -> same shape; in the memory of `result` when it is defined and norms come first.
  at::Tensor forward(const at::Tensor& hidden, const ForwardContext& context, const at::Tensor& result = {}) const;

 private:
  void declare_attention(ParameterStore& store);
  void declare_fused_qkv(ParameterStore& store);
  void declare_split_qkv(ParameterStore& store);
  void declare_ffn(ParameterStore& store);
  Parameter* declare_vector(ParameterStore& store, Parameter parameter, InitKind init);
  at::Tensor attention_part(const at::Tensor& x, const ForwardContext& context) const;
  at::Tensor ffn_part(const at::Tensor& x, const ForwardContext& context) const;

  ModelShape shape_;
  int64_t layer_;
  TensorParallelContext context_;
  AttentionOptions attention_;
  NormWeights norm1_, norm2_;
  std::vector<Parameter*> qkv_, qkv_bias_, out_, out_bias_, up_, up_bias_, down_, down_bias_;
  LinearWeights qkv_weights_, out_weights_, up_weights_, down_weights_;
};

// Norm parameters NAME.weight (ones) and, for LayerNorm, NAME.bias (zeros): replicated, no weight decay.
NormWeights declare_norm_parameters(ParameterStore& store, const std::string& name, const ModelShape& shape,
                                    const TensorParallelContext& context);

}  // namespace plait
