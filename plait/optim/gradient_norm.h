// The global gradient norm, each logical parameter once over the tensor and pipeline axes, and the clip factor from it.
// Sums in fp64 whatever the gradients' type. Partial norms are gathered and summed in rank order, so the result is bit-equal on all ranks.
#pragma once

#include "plait/comm/mesh.h"
#include "plait/tensor/parameter.h"

namespace plait {

// norm_type: 2 or infinity. Gradients must be final: reduced over the data axis and synchronised (gradient_sync.h).
// A value that is not finite in ANY gradient of any rank of the model (also in copies that do not count) makes the result non-finite
// on all ranks: float16 overflow is decided by this one number. Gradients are taken as they are: divide the norm by the loss scale.
// Rank rule: collective over mesh.tensor(), then mesh.pipeline().
double global_gradient_norm(const ParameterStore& store, const Mesh& mesh, double norm_type = 2.0);

// min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when limit is 0 (off).
double clip_factor(double norm, double limit);

namespace detail {
// Sum of squares (norm_type 2) or largest absolute value (infinity) of a contiguous fp32 or fp64 tensor; NaN and infinity propagate.
double local_norm_term(const at::Tensor& gradient, double norm_type);
}  // namespace detail

}  // namespace plait
