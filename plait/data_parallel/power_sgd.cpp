#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "plait/base/error.h"
#include "plait/base/random.h"
#include "plait/data_parallel/exchange.h"
#include "plait/tensor/wire_kernels.h"

namespace plait {

namespace {

// A column that the others leave less than this share of is their combination but for rounding.
constexpr double kSmallestShare = 1e-5;

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Columns of `matrix` [n, r] on the host, one behind the other.
std::vector<double> columns_of(const at::Tensor& matrix) {
  at::Tensor t = matrix.to(at::kDouble).cpu().t().contiguous();
  return {t.const_data_ptr<double>(), t.const_data_ptr<double>() + t.numel()};
}

void put_columns(const std::vector<double>& columns, at::Tensor matrix) {
  at::Tensor t = at::empty({matrix.size(1), matrix.size(0)}, at::kDouble);
  std::copy(columns.begin(), columns.end(), t.mutable_data_ptr<double>());
  matrix.copy_(t.t());
}

// Modified Gram-Schmidt in fp64, in plain loops: all ranks must get the same bits from the same matrix. A dependent column becomes zero; if
// anything is not finite everything becomes NaN, so that it reaches the result.
void orthonormalize(at::Tensor matrix) {
  const int64_t n = matrix.size(0), r = matrix.size(1);
  std::vector<double> columns = columns_of(matrix);
  for (int64_t k = 0; k < r; ++k) {
    double* own = columns.data() + k * n;
    const double before = std::sqrt(dot(own, own, n));
    for (int64_t j = 0; j < k; ++j) {
      const double* other = columns.data() + j * n;
      const double share = dot(own, other, n);
      for (int64_t i = 0; i < n; ++i) own[i] -= share * other[i];
    }
    const double after = std::sqrt(dot(own, own, n));
    if (!std::isfinite(before) || !std::isfinite(after)) {
      matrix.fill_(NAN);
      return;
    }
    const double factor = after > before * kSmallestShare ? 1.0 / after : 0.0;
    for (int64_t i = 0; i < n; ++i) own[i] *= factor;
  }
  put_columns(columns, matrix);
}

// The next start: unit columns. One that is zero would stay so for ever and one that is not finite is no start: both begin anew.
void refresh_start(at::Tensor matrix, uint64_t key) {
  const int64_t n = matrix.size(0), r = matrix.size(1);
  std::vector<double> columns = columns_of(matrix);
  for (int64_t k = 0; k < r; ++k) {
    double* own = columns.data() + k * n;
    double norm = std::sqrt(dot(own, own, n));
    if (!std::isfinite(norm) || norm == 0) {
      for (int64_t i = 0; i < n; ++i) own[i] = normal01(fold_key(key, static_cast<uint64_t>(k)), static_cast<uint64_t>(i));
      norm = std::sqrt(dot(own, own, n));
    }
    for (int64_t i = 0; i < n; ++i) own[i] /= norm;
  }
  put_columns(columns, matrix);
}

// out = left right^T with the same bits on all ranks.
void product(const at::Tensor& left, const at::Tensor& right, at::Tensor out) {
  if (!out.device().is_cpu()) {
    at::mm_out(out, left, right.t());
    return;
  }
  at::Tensor lines = right.t().contiguous();
  if (out.scalar_type() == at::kDouble)
    detail::low_rank_product(left.const_data_ptr<double>(), lines.const_data_ptr<double>(), left.size(0), lines.size(1), left.size(1),
                             out.mutable_data_ptr<double>());
  else
    detail::low_rank_product(left.const_data_ptr<float>(), lines.const_data_ptr<float>(), left.size(0), lines.size(1), left.size(1),
                             out.mutable_data_ptr<float>());
}

class PowerSgdExchange : public Exchange {
 public:
  PowerSgdExchange(ProcessGroup& group, std::vector<MatrixSpan> matrices, int64_t rank, uint64_t seed, at::TensorOptions options)
      : group_(group) {
    int64_t left = 0, right = 0;
    for (auto& span : matrices) {
      const int64_t r = std::min({rank, span.rows, span.columns});
      factors_.push_back({std::move(span), r, 0, left, right});
      factors_.back().key = fold_key(mix64(seed), name_key("powersgd " + factors_.back().span.name));
      left += factors_.back().span.rows * r;
      right += factors_.back().span.columns * r;
    }
    left_ = at::empty({left}, options);
    right_ = at::zeros({right}, options);
    start_ = at::zeros({right}, options);
    for (const Factors& f : factors_) refresh_start(right_of(start_, f), f.key);
    next_start_ = start_.clone();
  }

  void start(at::Tensor values, at::Tensor residual) override {
    at::NoGradGuard no_grad;
    settle(true);
    values_ = std::move(values);
    residual_ = std::move(residual);
    for (const Factors& f : factors_) {
      at::Tensor out = left_of(f);
      at::mm_out(out, matrix_of(values_, f), right_of(start_, f));
    }
    half_way_ = false;
    work_ = group_.all_reduce(left_);
  }

  void proceed() override {
    if (half_way_) return;
    at::NoGradGuard no_grad;
    work_->wait();
    for (const Factors& f : factors_) {
      at::Tensor left = left_of(f), right = right_of(right_, f), own = matrix_of(values_, f), rest = matrix_of(residual_, f);
      orthonormalize(left);
      at::mm_out(right, own.t(), left);
      at::addmm_out(rest, own, left, right.t(), 1, -1);
    }
    half_way_ = true;
    work_ = group_.all_reduce(right_);
  }

  void finish() override {
    at::NoGradGuard no_grad;
    proceed();
    work_->wait();
    for (const Factors& f : factors_) product(left_of(f), right_of(right_, f), matrix_of(values_, f));
    next_start_.copy_(right_);
    for (const Factors& f : factors_) refresh_start(right_of(next_start_, f), f.key);
    unsettled_ = true;
    values_.reset();
    residual_.reset();
    work_.reset();
  }

  int64_t bytes_sent() const override {
    return all_reduce_bytes((left_.numel() + right_.numel()) * static_cast<int64_t>(left_.element_size()), group_.size());
  }

  std::vector<NamedTensor> state() override {
    settle(true);
    std::vector<NamedTensor> out;
    for (const Factors& f : factors_) out.push_back({f.span.name + ".power_sgd_start", right_of(start_, f)});
    return out;
  }

  void settle(bool applied) override {
    if (unsettled_ && applied) start_.copy_(next_start_);
    unsettled_ = false;
  }

 private:
  struct Factors {
    MatrixSpan span;
    int64_t rank = 0;
    uint64_t key = 0;
    int64_t left = 0, right = 0;  // where its factors begin in left_ and right_
  };
  at::Tensor left_of(const Factors& f) const { return left_.narrow(0, f.left, f.span.rows * f.rank).view({f.span.rows, f.rank}); }
  static at::Tensor right_of(const at::Tensor& all, const Factors& f) {
    return all.narrow(0, f.right, f.span.columns * f.rank).view({f.span.columns, f.rank});
  }
  static at::Tensor matrix_of(const at::Tensor& all, const Factors& f) {
    return all.narrow(0, f.span.begin, f.span.rows * f.span.columns).view({f.span.rows, f.span.columns});
  }

  ProcessGroup& group_;
  std::vector<Factors> factors_;
  at::Tensor left_, right_;        // P and Q of this step, all matrices one behind the other: one message each
  at::Tensor start_, next_start_;  // Q that a step begins with; the one after it, until it is settled
  at::Tensor values_, residual_;
  WorkPtr work_;
  bool half_way_ = false, unsettled_ = false;
};

}  // namespace

bool low_rank_pays(int64_t rows, int64_t columns, int64_t rank) {
  rank = std::min({rank, rows, columns});
  return rank > 0 && 2 * (rows + columns) * rank <= rows * columns;
}

std::unique_ptr<Exchange> make_power_sgd_exchange(ProcessGroup& group, std::vector<MatrixSpan> matrices, int64_t rank, uint64_t seed,
                                                  at::TensorOptions options) {
  return std::make_unique<PowerSgdExchange>(group, std::move(matrices), rank, seed, options);
}

}  // namespace plait
