#include "plait/tensor_parallel/products.h"

#include <ATen/ATen.h>

#include "plait/base/error.h"
#include "plait/comm/row_exchange.h"
#include "plait/tensor/matrix_product.h"

namespace plait::detail {
namespace {

at::Tensor piece_of(const at::Tensor& x, const Span& rows) { return x.narrow(0, rows.begin, rows.size); }

void multiply_into(const at::Tensor& out, const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& bias) {
  if (x.size(0) > 0) matrix_product_into(out, x, matrix, bias);
}

at::Tensor empty_whole(const at::Tensor& own, const TensorParallelContext& c) {
  return at::empty({own.size(0) * c.size(), own.size(1)}, own.options());
}

// The parts are there or not: the sum itself is taken when somebody needs it.
class SumWork : public Work {
 public:
  SumWork(std::shared_ptr<RowScatterSum> parts, at::Tensor out) : parts_(std::move(parts)), out_(std::move(out)) {}
  void wait() override {
    if (!parts_) return;
    at::NoGradGuard no_grad;
    parts_->sum(out_);
    parts_->finish();
    parts_.reset();
  }
  bool done() override { return !parts_ || parts_->incoming()->done(); }

 private:
  std::shared_ptr<RowScatterSum> parts_;
  at::Tensor out_;
};

Summing sum_by_pieces(const at::Tensor& x, const at::Tensor& matrix, const TensorParallelContext& c) {
  const int64_t size = c.size();
  auto pieces = c.sequence_parallel ? equal_rows(x.size(0) / size, size) : even_rows(x.size(0), size);
  auto parts = std::make_shared<RowScatterSum>(*c.group, pieces, std::vector<int64_t>{matrix.size(1)}, x.options(), c.overlap);
  for (int64_t step = 0; step < size; ++step) {
    const Span& rows = pieces[static_cast<size_t>(parts->owner(step))];
    at::Tensor part = at::empty({rows.size, matrix.size(1)}, x.options());
    multiply_into(part, piece_of(x, rows), matrix, {});
    parts->give(step, part);
  }
  const Span& own = pieces[static_cast<size_t>(c.rank())];
  if (c.sequence_parallel) {
    at::Tensor sum = at::empty({own.size, matrix.size(1)}, x.options());
    return {sum, std::make_shared<SumWork>(parts, sum)};
  }
  at::Tensor whole = at::empty({x.size(0), matrix.size(1)}, x.options());
  parts->sum(piece_of(whole, own));
  return {whole, all_of({share_rows(*c.group, whole, pieces), parts->outgoing()})};
}

}  // namespace

Gathering begin_gather(const at::Tensor& own, const TensorParallelContext& c) {
  at::NoGradGuard no_grad;
  Gathering gathering{empty_whole(own, c), {}};
  if (c.p2p) {
    auto pieces = equal_rows(own.size(0), c.size());
    piece_of(gathering.whole, pieces[static_cast<size_t>(c.rank())]).copy_(own);
    gathering.work = share_rows(*c.group, gathering.whole, pieces);
  } else {
    gathering.work = c.group->all_gather(gathering.whole, own.contiguous());
  }
  return gathering;
}

at::Tensor gathered_product(const at::Tensor& own, const at::Tensor& matrix, const at::Tensor& bias, const TensorParallelContext& c,
                            at::Tensor* whole) {
  at::NoGradGuard no_grad;
  at::Tensor x;
  at::Tensor y = at::empty({own.size(0) * c.size(), matrix.size(1)}, own.options());
  if (c.p2p) {
    x = empty_whole(own, c);
    auto pieces = equal_rows(own.size(0), c.size());
    piece_of(x, pieces[static_cast<size_t>(c.rank())]).copy_(own);
    RowGather gather(*c.group, x, pieces, c.overlap);
    for (int64_t step = 0; step < c.size(); ++step) {
      Span rows = gather.next();
      multiply_into(piece_of(y, rows), piece_of(x, rows), matrix, bias);
    }
    gather.finish();
  } else {
    Gathering gathering = begin_gather(own, c);
    gathering.work->wait();
    x = gathering.whole;
    multiply_into(y, x, matrix, bias);
  }
  if (whole) *whole = x;
  return y;
}

Summing begin_summed_product(const at::Tensor& x, const at::Tensor& matrix, const TensorParallelContext& c) {
  at::NoGradGuard no_grad;
  PLAIT_CHECK(!c.sequence_parallel || x.size(0) % c.size() == 0, x.size(0), " rows over ", c.size(), " tensor ranks");
  if (c.p2p) return sum_by_pieces(x, matrix, c);
  at::Tensor product = c.pool ? c.pool->take({x.size(0), matrix.size(1)}, x.scalar_type()) : at::Tensor();
  if (product.defined()) matrix_product_into(product, x, matrix);
  else product = matrix_product(x, matrix);
  if (!c.sequence_parallel) return {product, c.group->all_reduce(product)};
  at::Tensor own = at::empty({product.size(0) / c.size(), product.size(1)}, product.options());
  return {own, c.group->reduce_scatter(own, product)};
}

}  // namespace plait::detail
