#include "plait/optim/gradient_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "plait/base/error.h"
#include "plait/optim/flat_kernels.h"
#include "plait/tensor/parallel.h"

namespace plait {
namespace {

// Runs of neighbouring parameters with the same counts_in_norm; gaps between them hold zeros.
struct NormSpan {
  int64_t begin, end;
  bool counts;
};

std::vector<NormSpan> norm_spans(const ParameterStore& store) {
  std::vector<NormSpan> spans;
  for (const auto& parameter : store.parameters()) {
    if (parameter->numel == 0) continue;
    const int64_t end = parameter->offset + parameter->numel;
    if (!spans.empty() && spans.back().counts == parameter->counts_in_norm) spans.back().end = end;
    else spans.push_back({parameter->offset, end, parameter->counts_in_norm});
  }
  return spans;
}

double combine(double a, double b, double norm_type) {
  if (norm_type == 2.0) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return std::max(a, b);
}

// Every member gets the same bits: the terms are combined in group order by each of them.
double combine_over(ProcessGroup& group, double term, double norm_type, at::Device device) {
  if (group.size() == 1) return term;
  const auto options = at::TensorOptions(at::kDouble).device(device);
  at::Tensor mine = at::full({1}, term, options), all = at::empty({group.size()}, options);
  group.all_gather(all, mine)->wait();
  all = all.cpu();
  double result = all[0].item<double>();
  for (int64_t i = 1; i < group.size(); ++i) result = combine(result, all[i].item<double>(), norm_type);
  return result;
}

constexpr int64_t kChunk = 65536;  // elements; fixed, so the result does not depend on the number of threads

template <class T>
double reduce_chunks(const T* x, int64_t n, double norm_type) {
  const int64_t num_chunks = (n + kChunk - 1) / kChunk;
  std::vector<double> terms(static_cast<size_t>(num_chunks));
  parallel_ranges(0, num_chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      const T* begin = x + c * kChunk;
      const int64_t size = std::min(kChunk, n - c * kChunk);
      terms[static_cast<size_t>(c)] = norm_type == 2.0 ? detail::sum_squares(begin, size) : detail::largest_absolute(begin, size);
    }
  });
  double result = 0.0;
  for (double term : terms) result = combine(result, term, norm_type);
  return result;
}

}  // namespace

namespace detail {

double local_norm_term(const at::Tensor& gradient, double norm_type) {
  if (gradient.numel() == 0) return 0.0;
  if (!gradient.is_cpu()) {
    double norm = at::linalg_vector_norm(gradient, norm_type, c10::nullopt, false, at::kDouble).item<double>();
    return norm_type == 2.0 ? norm * norm : norm;
  }
  PLAIT_CHECK(gradient.is_contiguous(), "the gradient span is not contiguous");
  if (gradient.scalar_type() == at::kDouble) return reduce_chunks(gradient.data_ptr<double>(), gradient.numel(), norm_type);
  return reduce_chunks(gradient.data_ptr<float>(), gradient.numel(), norm_type);
}

}  // namespace detail

double global_gradient_norm(const ParameterStore& store, const Mesh& mesh, double norm_type) {
  at::NoGradGuard no_grad;
  if (norm_type != 2.0 && !(std::isinf(norm_type) && norm_type > 0))
    throw_error(ExitCode::kUsage, "train.norm_type: ", norm_type, " is not supported: it must be 2 or infinity");
  at::Tensor flat = store.flat_gradients();
  double term = 0.0;
  for (const NormSpan& span : norm_spans(store)) {
    double part = detail::local_norm_term(flat.narrow(0, span.begin, span.end - span.begin), norm_type);
    // A copy that does not count adds 0 when finite and NaN when not.
    term = combine(term, span.counts ? part : part * 0.0, norm_type);
  }
  term = combine_over(mesh.tensor(), term, norm_type, flat.device());
  term = combine_over(mesh.pipeline(), term, norm_type, flat.device());
  return norm_type == 2.0 ? std::sqrt(term) : term;
}

double clip_factor(double norm, double limit) {
  if (limit <= 0.0) return 1.0;
  return std::min(1.0, limit / (norm + 1e-6));
}

}  // namespace plait
