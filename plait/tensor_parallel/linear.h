// Linear layers whose weight is split over the tensor axis (Shoeybi et al., arXiv 1909.08053). Backward is one autograd function that
// adds the weight gradient straight into the parameter's gradient buffer and overlaps it with the communication of the input gradient.
// Rank rule: all ranks of the tensor group call in the same order, forward and backward.
// Letters: T tokens, I input width, O output width; lower case = this rank's share.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "plait/tensor/parameter.h"
#include "plait/tensor_parallel/context.h"

namespace plait {

// One matrix for the kernels, one or more parameters for the records (q, k and v lie behind each other and form one matrix).
class LinearWeights {
 public:
  LinearWeights() = default;
  // Parameters in memory order; after ParameterStore::allocate(). Biases may be empty.
  LinearWeights(std::vector<Parameter*> weights, std::vector<Parameter*> biases);

  at::Tensor weight, bias;                    // [o, i], [o] or undefined
  at::Tensor weight_gradient, bias_gradient;  // same shapes, master type
  void add_use() const;
  void weight_done() const;
  void bias_done() const;

 private:
  std::vector<Parameter*> weights_, biases_;
};

enum class LinearMode {
  kReplicated,   // every rank has the whole weight and does the same work
  kColumn,       // output split: x [T, I] -> [T, o]; backward sums dx over ranks. Sequence parallel: x [t, I] is gathered first
  kColumnLocal,  // output split, but the caller has already arranged for dx to be summed (behind gather_rows)
  kRow,          // input split: x [T, i] -> [T, O] summed over ranks. Sequence parallel: -> [t, O], own rows of the sum
};

// y = x W^T + b in the given mode. x [rows, i or I] contiguous, weights must outlive the backward. Adds dW, db to the gradient buffers.
at::Tensor parallel_linear(const at::Tensor& x, const LinearWeights& weights, LinearMode mode, const TensorParallelContext& context);

// The usual layer objects, for programs that build their own models.
class ColumnParallelLinear {
 public:
  // Declares NAME.weight [O, I] split by rows (evenly; O need not divide) and NAME.bias. gather_output: every rank gets [T, O].
  ColumnParallelLinear(ParameterStore& store, const std::string& name, int64_t in_size, int64_t out_size, bool bias, bool gather_output,
                       const TensorParallelContext& context);
  void bind();  // after store.allocate()
  at::Tensor forward(const at::Tensor& x) const;

 private:
  TensorParallelContext context_;
  int64_t out_size_;
  bool gather_output_;
  Parameter *weight_, *bias_ = nullptr;
  LinearWeights weights_;
};

class RowParallelLinear {
 public:
  // Declares NAME.weight [O, I] split by columns and NAME.bias (replicated). input_is_parallel false: x [T, I] is split here.
  RowParallelLinear(ParameterStore& store, const std::string& name, int64_t in_size, int64_t out_size, bool bias, bool input_is_parallel,
                    const TensorParallelContext& context);
  void bind();
  at::Tensor forward(const at::Tensor& x) const;

 private:
  TensorParallelContext context_;
  int64_t in_size_;
  bool input_is_parallel_;
  Parameter *weight_, *bias_ = nullptr;
  LinearWeights weights_;
};

// Record of a matrix [global_rows, global_columns] (stored layout) split evenly over the tensor axis along `axis` (-1: replicated).
Parameter shard_parameter(const std::string& name, std::vector<int64_t> global_shape, int64_t axis, const TensorParallelContext& context);

}  // namespace plait
