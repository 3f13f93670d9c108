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

bool is_on_cpu(const at::Tensor& x, at::ScalarType type) {
  return x.device().is_cpu() && x.scalar_type() == type && x.layout() == at::kStrided;
}

// bfloat16 is summed in float32, and stored so where the result is of that type.
bool has_kernel(at::ScalarType type) {
  static const bool in_float = detail::should_multiply(), in_bfloat16 = detail::should_multiply_bfloat16();
  return type == at::kFloat ? in_float : type == at::kBFloat16 && in_bfloat16;
}

// Whatever does not fit together is left to LibTorch, which says what is wrong. Must not look at the number of rows: pieces of rows would
// take another kernel than the whole.
bool takes_own_kernel(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  const at::ScalarType type = a.scalar_type();
  if (!has_kernel(type) || !is_on_cpu(a, type) || !is_on_cpu(b, type) || a.dim() != 2 || b.dim() != 2 || out.dim() != 2) return false;
  if (!is_on_cpu(out, type) && !is_on_cpu(out, at::kFloat)) return false;
  if (a.size(1) != b.size(0) || out.size(0) != a.size(0) || out.size(1) != b.size(1)) return false;
  if (bias.defined() && !(is_on_cpu(bias, type) && bias.dim() == 1 && bias.size(0) == b.size(1) && bias.is_contiguous())) return false;
  return out.stride(1) == 1 && out.stride(0) >= out.size(1);
}

template <class T>
void run(const detail::ProductOf<T>& p) {
  at::Tensor scratch = at::empty({detail::scratch_floats(p)}, at::kFloat);
  detail::multiply(p, scratch.mutable_data_ptr<float>());
}

// Threads take rows, or columns where there are more of them.
template <class T>
void run_in_threads(const detail::ProductOf<T>& p) {
  const bool by_rows = p.m >= p.n;
  const int64_t size = by_rows ? p.m : p.n, unit = by_rows ? kRowsTogether : kColumnsTogether;
  const int64_t units = (size + unit - 1) / unit, products = std::max<int64_t>(p.m * p.n * p.k, 1);
  if (at::get_num_threads() == 1 || at::in_parallel_region() || products <= kProductsPerThread) return run(p);
  const int64_t grain = std::max<int64_t>(units * kProductsPerThread / products, 1);
  parallel_ranges(0, units, grain, [&](int64_t begin, int64_t end) {
    detail::ProductOf<T> piece = p;
    const int64_t from = begin * unit, to = std::min(end * unit, size), place = by_rows ? from * p.c_stride : from;
    if (piece.c) piece.c += place;
    if (piece.rounded) piece.rounded += place;
    if (by_rows) {
      piece.m = to - from;
      piece.a.data += from * p.a.row_stride;
    } else {
      piece.n = to - from;
      piece.b.data += from * p.b.column_stride;
      if (p.bias) piece.bias += from;
    }
    run(piece);
  });
}

template <class T>
detail::MatrixViewOf<T> view_of(const at::Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1)};
}

template <class T>
void multiply_own(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, bool accumulate) {
  detail::ProductOf<T> p{out.size(0), out.size(1), a.size(1), view_of<T>(a), view_of<T>(b), nullptr, out.stride(0)};
  if (out.scalar_type() == at::kFloat) p.c = out.mutable_data_ptr<float>();
  else p.rounded = static_cast<T*>(out.mutable_data_ptr());
  const at::Tensor wide = bias.defined() ? bias.to(at::kFloat) : bias;
  if (wide.defined()) p.bias = wide.const_data_ptr<float>();
  p.accumulate = accumulate;
  run_in_threads(p);
}

void multiply_own(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, bool accumulate) {
  if (a.scalar_type() == at::kFloat) multiply_own<float>(out, a, b, bias, accumulate);
  else multiply_own<detail::BFloat16Bits>(out, a, b, bias, accumulate);
}

}  // namespace

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (a.dim() == 2 && b.dim() == 2 && a.device().is_cpu() && has_kernel(a.scalar_type())) {
    at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
    matrix_product_into(out, a, b, bias);
    return out;
  }
  return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
}

void matrix_product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  at::NoGradGuard no_grad;
  if (out.scalar_type() == a.scalar_type() && takes_own_kernel(out, a, b, bias)) multiply_own(out, a, b, bias, false);
  else if (bias.defined()) at::addmm_out(out, bias, a, b);
  else at::mm_out(out, a, b);
}

void add_matrix_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  at::NoGradGuard no_grad;
  if (sum.scalar_type() == at::kFloat && takes_own_kernel(sum, a, b, {})) multiply_own(sum, a, b, {}, true);
  else if (sum.scalar_type() == a.scalar_type()) sum.addmm_(a, b);
  else sum.add_(at::mm(a, b));
}

}  // namespace plait
