#include "plait/tensor_parallel/embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>

#include "plait/base/error.h"
#include "plait/plan/partition.h"

namespace plait {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// table[rows], zeros where rows < 0.
at::Tensor lookup(const at::Tensor& table, const at::Tensor& rows) {
  at::Tensor missing = rows.lt(0);
  if (table.size(0) == 0) return at::zeros({rows.size(0), table.size(1)}, table.options());
  at::Tensor out = table.index_select(0, rows.clamp_min(0));
  return out.masked_fill_(missing.unsqueeze(1), 0);
}

template <class Scalar>
void add_rows(Scalar* out, const Scalar* in, const int64_t* rows, int64_t count, int64_t width) {
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] < 0) continue;
    Scalar* o = out + rows[i] * width;
    const Scalar* x = in + i * width;
    for (int64_t j = 0; j < width; ++j) o[j] += x[j];
  }
}

// gradient[rows[i]] += dy[i], in row order, so that the sum does not depend on threads.
void accumulate_rows(at::Tensor gradient, const at::Tensor& rows, const at::Tensor& dy) {
  at::NoGradGuard no_grad;
  at::Tensor values = dy.to(gradient.scalar_type()).contiguous();
  if (gradient.is_cpu()) {
    at::Tensor index = rows.contiguous();
    const int64_t* r = index.const_data_ptr<int64_t>();
    if (gradient.scalar_type() == at::kDouble)
      add_rows(gradient.mutable_data_ptr<double>(), values.const_data_ptr<double>(), r, values.size(0), values.size(1));
    else add_rows(gradient.mutable_data_ptr<float>(), values.const_data_ptr<float>(), r, values.size(0), values.size(1));
    return;
  }
  at::Tensor kept = rows.ge(0).nonzero().flatten();
  gradient.index_add_(0, rows.index_select(0, kept), values.index_select(0, kept));
}

// Sum over the tensor group: everything, or own rows under sequence parallelism.
at::Tensor sum_parts(at::Tensor part, const TensorParallelContext& c) {
  if (c.size() == 1) return part;
  if (!c.sequence_parallel) {
    c.group->all_reduce(part)->wait();
    return part;
  }
  int64_t rows = c.local_rows(part.size(0));
  at::Tensor padded = at::constant_pad_nd(part, {0, 0, 0, rows * c.size() - part.size(0)});
  at::Tensor own = at::empty({rows, part.size(1)}, part.options());
  c.group->reduce_scatter(own, padded.contiguous())->wait();
  return own;
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& anchor, const at::Tensor& forward_rows, const at::Tensor& backward_rows,
                            Parameter* table, const TensorParallelContext* context) {
    ctx->save_for_backward({backward_rows});
    ctx->saved_data["table"] = reinterpret_cast<int64_t>(table);
    ctx->saved_data["gather"] = context != nullptr && context->sequence_parallel && context->size() > 1;
    ctx->saved_data["group"] = reinterpret_cast<int64_t>(context ? context->group : nullptr);
    at::Tensor out = lookup(table->weight, forward_rows);
    return context ? sum_parts(out, *context) : out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor rows = ctx->get_saved_variables()[0], dy = grads[0];
    auto* table = reinterpret_cast<Parameter*>(ctx->saved_data["table"].toInt());
    if (ctx->saved_data["gather"].toBool()) {
      auto* group = reinterpret_cast<ProcessGroup*>(ctx->saved_data["group"].toInt());
      at::Tensor all = at::empty({dy.size(0) * group->size(), dy.size(1)}, dy.options());
      group->all_gather(all, dy.contiguous())->wait();
      dy = all.narrow(0, 0, rows.size(0));
    }
    accumulate_rows(table->gradient, rows, dy);
    table->use_done();
    return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// index_select whose backward copies rows instead of adding them one by one.
struct SelectRowsFunction : torch::autograd::Function<SelectRowsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& rows) {
    ctx->save_for_backward({rows});
    ctx->saved_data["rows"] = x.size(0);
    return x.index_select(0, rows);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::NoGradGuard no_grad;
    at::Tensor rows = ctx->get_saved_variables()[0].contiguous(), dy = grads[0].contiguous();
    at::Tensor dx = at::zeros({ctx->saved_data["rows"].toInt(), dy.size(1)}, dy.options());
    if (!dy.is_cpu()) return {dx.index_copy_(0, rows, dy), at::Tensor()};
    size_t row_bytes = static_cast<size_t>(dy.size(1)) * dy.element_size();
    const int64_t* place = rows.const_data_ptr<int64_t>();
    const char* from = static_cast<const char*>(dy.const_data_ptr());
    char* to = static_cast<char*>(dx.mutable_data_ptr());
    for (int64_t i = 0; i < dy.size(0); ++i)
      std::memcpy(to + static_cast<size_t>(place[i]) * row_bytes, from + static_cast<size_t>(i) * row_bytes, row_bytes);
    return {dx, at::Tensor()};
  }
};

bool recording(const at::Tensor& anchor) { return at::GradMode::is_enabled() && anchor.requires_grad(); }

}  // namespace

at::Tensor vocab_parallel_embedding(const at::Tensor& anchor, const at::Tensor& ids, Parameter& table, int64_t frozen_row,
                                    const TensorParallelContext& context) {
  Span own = table.pieces.empty() ? Span{0, table.local_shape[0]} : Span{table.pieces[0].global_begin, table.pieces[0].size};
  at::Tensor rows = ids - own.begin;
  rows = rows.masked_fill(rows.ge(own.size).logical_or_(rows.lt(0)), -1);
  if (!recording(anchor)) return sum_parts(lookup(table.weight, rows), context);
  table.add_use();
  at::Tensor trained = frozen_row >= 0 ? rows.masked_fill(ids.eq(frozen_row), -1) : rows;
  return EmbeddingFunction::apply(anchor, rows, trained, &table, &context);
}

at::Tensor replicated_embedding(const at::Tensor& anchor, const at::Tensor& ids, Parameter& table) {
  if (!recording(anchor)) return lookup(table.weight, ids);
  table.add_use();
  return EmbeddingFunction::apply(anchor, ids, ids, &table, static_cast<const TensorParallelContext*>(nullptr));
}

at::Tensor select_rows(const at::Tensor& x, const at::Tensor& rows) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return x.index_select(0, rows);
  return SelectRowsFunction::apply(x, rows);
}

at::Tensor own_rows(const at::Tensor& values, int64_t fill, const TensorParallelContext& context) {
  if (!context.sequence_parallel || context.size() == 1) return values;
  int64_t rows = context.local_rows(values.size(0));
  at::Tensor padded = at::constant_pad_nd(values, {0, rows * context.size() - values.size(0)}, fill);
  return padded.narrow(0, rows * context.rank(), rows).contiguous();
}

}  // namespace plait
