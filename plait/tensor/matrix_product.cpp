#include "plait/tensor/matrix_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "plait/tensor/gemm_kernels.h"
#include "plait/tensor/parallel.h"

namespace plait {
namespace {

constexpr int64_t kRowsTogether = 14, kColumnsTogether = 32;  // tiles of the kernel: a cut between them costs nothing
constexpr int64_t kProductsPerThread = int64_t{1} << 20;

bool float_on_cpu(const at::Tensor& x) { return x.device().is_cpu() && x.scalar_type() == at::kFloat && x.layout() == at::kStrided; }

// Whatever does not fit together is left to LibTorch, which says what is wrong. Must not look at the number of rows: pieces of rows would
// take another kernel than the whole.
bool takes_own_kernel(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  static const bool worth_it = detail::should_multiply();
  if (!worth_it || !float_on_cpu(out) || !float_on_cpu(a) || !float_on_cpu(b) || a.dim() != 2 || b.dim() != 2 || out.dim() != 2)
    return false;
  if (a.size(1) != b.size(0) || out.size(0) != a.size(0) || out.size(1) != b.size(1)) return false;
  if (bias.defined() && !(float_on_cpu(bias) && bias.dim() == 1 && bias.size(0) == b.size(1) && bias.is_contiguous())) return false;
  return out.stride(1) == 1 && out.stride(0) >= out.size(1);
}

void run(const detail::Product& p) {
  at::Tensor scratch = at::empty({detail::scratch_floats(p)}, at::kFloat);
  detail::multiply(p, scratch.mutable_data_ptr<float>());
}

// Threads take rows, or columns where there are more of them.
void run_in_threads(const detail::Product& p) {
  const bool by_rows = p.m >= p.n;
  const int64_t size = by_rows ? p.m : p.n, unit = by_rows ? kRowsTogether : kColumnsTogether;
  const int64_t units = (size + unit - 1) / unit, products = std::max<int64_t>(p.m * p.n * p.k, 1);
  if (at::get_num_threads() == 1 || at::in_parallel_region() || products <= kProductsPerThread) return run(p);
  const int64_t grain = std::max<int64_t>(units * kProductsPerThread / products, 1);
  parallel_ranges(0, units, grain, [&](int64_t begin, int64_t end) {
    detail::Product piece = p;
    const int64_t from = begin * unit, to = std::min(end * unit, size);
    if (by_rows) {
      piece.m = to - from;
      piece.a.data += from * p.a.row_stride;
      piece.c += from * p.c_stride;
    } else {
      piece.n = to - from;
      piece.b.data += from * p.b.column_stride;
      piece.c += from;
      if (p.bias) piece.bias += from;
    }
    run(piece);
  });
}

void multiply_own(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, bool accumulate) {
  detail::Product p{out.size(0), out.size(1), a.size(1), {}, {}, out.mutable_data_ptr<float>(), out.stride(0)};
  p.a = {a.const_data_ptr<float>(), a.stride(0), a.stride(1)};
  p.b = {b.const_data_ptr<float>(), b.stride(0), b.stride(1)};
  if (bias.defined()) p.bias = bias.const_data_ptr<float>();
  p.accumulate = accumulate;
  run_in_threads(p);
}

}  // namespace

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (a.dim() == 2 && b.dim() == 2 && float_on_cpu(a)) {
    at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
    matrix_product_into(out, a, b, bias);
    return out;
  }
  return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
}

void matrix_product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  at::NoGradGuard no_grad;
  if (takes_own_kernel(out, a, b, bias)) multiply_own(out, a, b, bias, false);
  else if (bias.defined()) at::addmm_out(out, bias, a, b);
  else at::mm_out(out, a, b);
}

void add_matrix_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  at::NoGradGuard no_grad;
  if (takes_own_kernel(sum, a, b, {})) multiply_own(sum, a, b, {}, true);
  else if (sum.scalar_type() == a.scalar_type()) sum.addmm_(a, b);
  else sum.add_(at::mm(a, b));
}

}  // namespace plait
