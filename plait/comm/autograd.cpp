#include "plait/comm/autograd.h"

#include <torch/csrc/autograd/custom_function.h>

#include "plait/base/error.h"
#include "plait/plan/partition.h"

namespace plait {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The graph keeps a plain pointer: process groups live as long as the Mesh, which outlives every graph.
void keep_group(AutogradContext* context, ProcessGroup& group) {
  context->saved_data["group"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(&group));
}
ProcessGroup& kept_group(AutogradContext* context) {
  return *reinterpret_cast<ProcessGroup*>(static_cast<intptr_t>(context->saved_data["group"].toInt()));
}

// A new tensor: the argument may be shared with other branches of the graph.
at::Tensor all_reduced(const at::Tensor& x, ProcessGroup& group) {
  at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum)->wait();
  return sum;
}

at::Tensor rows_gathered(const at::Tensor& x, ProcessGroup& group) {
  PLAIT_CHECK(x.dim() >= 1, "rows of a scalar");
  auto shape = x.sizes().vec();
  shape[0] *= group.size();
  at::Tensor all = at::empty(shape, x.options());
  group.all_gather(all, x.contiguous())->wait();
  return all;
}

int64_t rows_of_member(const at::Tensor& x, ProcessGroup& group) {
  PLAIT_CHECK(x.dim() >= 1 && x.size(0) % group.size() == 0, "rows of a tensor over ", group.size(), " ranks of group ", group.name());
  return x.size(0) / group.size();
}

at::Tensor rows_reduce_scattered(const at::Tensor& x, ProcessGroup& group) {
  auto shape = x.sizes().vec();
  shape[0] = rows_of_member(x, group);
  at::Tensor own = at::empty(shape, x.options());
  group.reduce_scatter(own, x.contiguous())->wait();
  return own;
}

at::Tensor own_rows(const at::Tensor& x, ProcessGroup& group) {
  int64_t rows = rows_of_member(x, group);
  return x.narrow(0, group.rank() * rows, rows).clone(at::MemoryFormat::Contiguous);
}

struct CopyFunction : torch::autograd::Function<CopyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, ProcessGroup* group) {
    keep_group(context, *group);
    return x.alias();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {all_reduced(gradients[0], kept_group(context)), at::Tensor()};
  }
};

struct ReduceFunction : torch::autograd::Function<ReduceFunction> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, ProcessGroup* group) { return all_reduced(x, *group); }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0], at::Tensor()}; }
};

struct GatherRowsFunction : torch::autograd::Function<GatherRowsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, ProcessGroup* group, bool replicated_use) {
    keep_group(context, *group);
    context->saved_data["replicated_use"] = replicated_use;
    return rows_gathered(x, *group);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ProcessGroup& group = kept_group(context);
    bool replicated_use = context->saved_data["replicated_use"].toBool();
    return {replicated_use ? own_rows(gradients[0], group) : rows_reduce_scattered(gradients[0], group), at::Tensor(), at::Tensor()};
  }
};

struct ReduceScatterRowsFunction : torch::autograd::Function<ReduceScatterRowsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, ProcessGroup* group) {
    keep_group(context, *group);
    return rows_reduce_scattered(x, *group);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {rows_gathered(gradients[0], kept_group(context)), at::Tensor()};
  }
};

struct ScatterRowsFunction : torch::autograd::Function<ScatterRowsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, ProcessGroup* group) {
    keep_group(context, *group);
    return own_rows(x, *group);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {rows_gathered(gradients[0], kept_group(context)), at::Tensor()};
  }
};

// [..., h] of every member, padded to the widest, lie one after the other in one all-gather.
at::Tensor columns_gathered(const at::Tensor& x, int64_t total, ProcessGroup& group) {
  int64_t size = group.size(), widest = split_evenly(total, size, 0).size, rows = 1;
  for (int64_t axis = 0; axis + 1 < x.dim(); ++axis) rows *= x.size(axis);
  at::Tensor mine = x.contiguous();
  if (x.size(-1) != widest) mine = at::constant_pad_nd(mine, {0, widest - x.size(-1)});
  at::Tensor all = at::empty({size, rows, widest}, x.options());
  group.all_gather(all, mine)->wait();
  std::vector<at::Tensor> pieces;
  for (int64_t r = 0; r < size; ++r) pieces.push_back(all[r].narrow(1, 0, split_evenly(total, size, r).size));
  auto shape = x.sizes().vec();
  shape.back() = total;
  return at::cat(pieces, 1).view(shape);
}

struct GatherColumnsFunction : torch::autograd::Function<GatherColumnsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t total, ProcessGroup* group) {
    Span own = split_evenly(total, group->size(), group->rank());
    context->saved_data["begin"] = own.begin;
    context->saved_data["size"] = own.size;
    return columns_gathered(x, total, *group);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    int64_t begin = context->saved_data["begin"].toInt(), size = context->saved_data["size"].toInt();
    return {gradients[0].narrow(-1, begin, size).contiguous(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor copy_to_tensor_ranks(const at::Tensor& x, ProcessGroup& group) { return group.size() == 1 ? x : CopyFunction::apply(x, &group); }

at::Tensor reduce_from_tensor_ranks(const at::Tensor& x, ProcessGroup& group) {
  return group.size() == 1 ? x : ReduceFunction::apply(x, &group);
}

at::Tensor gather_rows(const at::Tensor& x, ProcessGroup& group, bool replicated_use) {
  return group.size() == 1 ? x : GatherRowsFunction::apply(x, &group, replicated_use);
}

at::Tensor reduce_scatter_rows(const at::Tensor& x, ProcessGroup& group) {
  return group.size() == 1 ? x : ReduceScatterRowsFunction::apply(x, &group);
}

at::Tensor scatter_rows(const at::Tensor& x, ProcessGroup& group) { return group.size() == 1 ? x : ScatterRowsFunction::apply(x, &group); }

at::Tensor gather_columns(const at::Tensor& x, int64_t total, ProcessGroup& group) {
  int64_t own = split_evenly(total, group.size(), group.rank()).size;
  PLAIT_CHECK(x.dim() >= 1 && x.size(-1) == own, "columns of group rank ", group.rank(), " of ", group.size(), ": should be ", own, " of ",
              total);
  return group.size() == 1 ? x : GatherColumnsFunction::apply(x, total, &group);
}

}  // namespace plait
