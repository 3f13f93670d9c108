// The products of a parallel linear layer together with the messages they need, in both styles of train.comm.priority.tensor_parallel.
// collective: one product and one collective. p2p: row by row piece of the members, so that one piece travels while the next is computed.
// Both styles give the same bits where the product is our own (plait/tensor/matrix_product.h). Else the product of some rows may differ from
// the same rows of the whole product in the last bits, because the BLAS picks its kernel by shape; that is the only difference.
// Rank rule: all ranks of the tensor group call in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include "plait/tensor_parallel/context.h"

namespace plait::detail {

// Own rows [t, ...] of every rank behind each other, in the making.
struct Gathering {
  at::Tensor whole;
  WorkPtr work;
};
Gathering begin_gather(const at::Tensor& own, const TensorParallelContext& context);

// y [T, o] = x matrix (+ bias) with x [T, i] gathered from own rows [t, i]; `whole`, when given, receives x.
at::Tensor gathered_product(const at::Tensor& own, const at::Tensor& matrix, const at::Tensor& bias, const TensorParallelContext& context,
                            at::Tensor* whole);

// x matrix summed over the ranks, in the making: [T, o], or own rows [t, o] under sequence parallelism. Ready after work->wait().
struct Summing {
  at::Tensor result;
  WorkPtr work;
};
Summing begin_summed_product(const at::Tensor& x, const at::Tensor& matrix, const TensorParallelContext& context);

}  // namespace plait::detail
