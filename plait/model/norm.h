// LayerNorm and RMSNorm over rows [T, H], statistics in fp32 (fp64), gradients added straight into the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include "plait/tensor/parameter.h"

namespace plait {

struct NormWeights {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  // null for RMSNorm
  double eps = 1e-5;
};

// LayerNorm (Ba et al., arXiv 1607.06450) when a bias is given, else RMSNorm (Zhang and Sennrich, arXiv 1910.07467). No communication.
at::Tensor norm_rows(const at::Tensor& x, const NormWeights& weights);

}  // namespace plait
