// The arithmetic of optimizer updates and norms on a contiguous run of elements, on the CPU, one thread: one pass, no temporaries, the
// gradient's scale applied on the fly, compiled for several vector widths and chosen at run time. No torch in here.
// Unlike ATen's fused kernels, whose vector body and tail may round differently (and whose grad_scale is fp32 and is written back to the
// gradient), an element's result does not depend on where it lies: no multiply-add is contracted, every operation is rounded on its own.
// So copies of a tied or replicated parameter at different offsets stay bit-equal, in fp32 and fp64 alike.
#pragma once

#include <cstdint>

namespace plait::detail {

// Scalars of one AdamW update (Loshchilov and Hutter, arXiv 1711.05101; order of operations as torch.optim.AdamW), or of one Adam update
// with coupled decay (Kingma and Ba, arXiv 1412.6980; as torch.optim.Adam): of the two decays one is at its neutral value.
struct AdamWTerms {
  double gradient_scale = 1.0;
  double decay = 1.0;          // AdamW: 1 - lr * weight_decay
  double coupled_decay = 0.0;  // Adam: weight_decay, added to the scaled gradient as a share of the weight
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double step_size = 0.0;   // lr / (1 - beta1^t)
  double bias2_sqrt = 1.0;  // sqrt(1 - beta2^t)
};
void adamw_update(float* weight, const float* gradient, float* exp_avg, float* exp_avg_sq, int64_t n, const AdamWTerms& terms);
void adamw_update(double* weight, const double* gradient, double* exp_avg, double* exp_avg_sq, int64_t n, const AdamWTerms& terms);

// Scalars of one SGD update (torch.optim.SGD, dampening 0: weight decay is coupled, added to the gradient).
struct SGDTerms {
  double gradient_scale = 1.0;
  double weight_decay = 0.0;
  double momentum = 0.0;
  bool nesterov = false;
  double lr = 0.0;
};
// momentum_buffer is null when momentum is 0.
void sgd_update(float* weight, const float* gradient, float* momentum_buffer, int64_t n, const SGDTerms& terms);
void sgd_update(double* weight, const double* gradient, double* momentum_buffer, int64_t n, const SGDTerms& terms);

// Sum of squares in fp64, in an order that depends on n only; NaN and infinity propagate.
double sum_squares(const float* x, int64_t n);
double sum_squares(const double* x, int64_t n);
// Largest absolute value; NaN when any element is infinite or NaN.
double largest_absolute(const float* x, int64_t n);
double largest_absolute(const double* x, int64_t n);

}  // namespace plait::detail
