// FFN activations over rows, plain or gated.
#pragma once

#include <ATen/core/Tensor.h>

#include "plait/config/model_shape.h"

namespace plait {

// x [T, f] -> act(x); gated: x [T, 2f] = gate | up -> act(gate) * up [T, f] (Shazeer, arXiv 2002.05202).
at::Tensor activate(const at::Tensor& x, Activation activation, bool gated);

}  // namespace plait
