// Matrix products of the layers. float32 and bfloat16 on CPUs that gemm_kernels.h is for take the kernels there: rows of a product then have
// the same bits in every cut of the product and for any number of threads. Everything else is LibTorch's.
// Not differentiable: for use inside autograd functions. Any thread; uses at::get_num_threads() threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace plait {

// a [m, k] b [k, n] (+ bias [n]). Any strides, so a transposed view costs nothing. One type.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});
// The same into `out` [m, n], which must not overlap the operands.
void matrix_product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});
// sum += a b in the type of `sum`, which may be wider than that of a and b.
void add_matrix_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

}  // namespace plait
