// Column- and row-parallel linear and the split embedding against plain matrix algebra on one process.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "plait/base/random.h"
#include "plait/base/text.h"
#include "plait/comm/autograd.h"
#include "plait/comm/launch.h"
#include "plait/plan/partition.h"
#include "plait/tensor_parallel/embedding.h"
#include "plait/tensor_parallel/linear.h"

namespace plait {
namespace {

constexpr double kBound = 1e-12;

at::Tensor values(at::IntArrayRef sizes, uint64_t salt) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  double* p = x.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i)
    p[i] = static_cast<double>(mix64(salt * 1000003 + static_cast<uint64_t>(i)) >> 11) * 0x1p-52 - 1.0;
  return x;
}

void expect_near(const at::Tensor& got, const at::Tensor& wanted, const char* what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (got.numel() > 0) {
    EXPECT_LE((got.detach() - wanted).abs().max().item<double>(), kBound) << what;
  }
}

// Fills the local pieces of a parameter from its whole.
void fill(Parameter& p, const at::Tensor& whole) {
  at::Tensor flat = whole.contiguous().flatten(), local = p.master.view({-1});
  for_each_run(
      p, [&](int64_t global, int64_t begin, int64_t length) { local.narrow(0, begin, length).copy_(flat.narrow(0, global, length)); });
}

// The gradient of this rank's pieces against the whole's.
void expect_pieces(const Parameter& p, const at::Tensor& whole_gradient) {
  at::Tensor flat = whole_gradient.contiguous().flatten(), local = p.gradient.reshape({-1});
  for_each_run(p, [&](int64_t global, int64_t begin, int64_t length) {
    EXPECT_LE((local.narrow(0, begin, length) - flat.narrow(0, global, length)).abs().max().item<double>(), kBound) << p.name;
  });
}

// Rows of this rank under sequence parallelism, zeros past the end.
at::Tensor own_slice(const at::Tensor& x, const TensorParallelContext& c) {
  if (!c.sequence_parallel) return x;
  int64_t rows = c.local_rows(x.size(0));
  return at::constant_pad_nd(x, {0, 0, 0, rows * c.size() - x.size(0)}).narrow(0, rows * c.rank(), rows).contiguous();
}

struct LinearCase {
  int64_t tokens, in, out;
  bool bias, sequence;
};

// y = x W^T + b, loss = sum(y * dy).
struct Dense {
  at::Tensor x, weight, bias, dy, y, dx, d_weight, d_bias;
  explicit Dense(const LinearCase& c)
      : x(values({c.tokens, c.in}, 1)), weight(values({c.out, c.in}, 2)), bias(values({c.out}, 3)), dy(values({c.tokens, c.out}, 4)) {
    y = at::mm(x, weight.t());
    if (c.bias) y = y + bias;
    dx = at::mm(dy, weight);
    d_weight = at::mm(dy.t(), x);
    d_bias = dy.sum(0);
  }
};

void check_column(Mesh& mesh, const LinearCase& c, bool gather_output) {
  SCOPED_TRACE(cat("column tp ", mesh.tensor().size(), " out ", c.out, " tokens ", c.tokens, " bias ", c.bias, " sequence ", c.sequence,
                   " gather ", gather_output));
  TensorParallelContext context{&mesh.tensor(), c.sequence && mesh.tensor().size() > 1, nullptr};
  if (context.sequence_parallel && c.tokens % context.size() != 0) return;  // the model pads; a layer of its own gets whole slices
  Dense d(c);
  ParameterStore store;
  ColumnParallelLinear layer(store, "layer", c.in, c.out, c.bias, gather_output, context);
  store.allocate(at::kDouble, at::kCPU);
  layer.bind();
  fill(*store.parameters()[0], d.weight);
  if (c.bias) fill(*store.parameters()[1], d.bias);
  at::Tensor x = own_slice(d.x, context).clone();
  x.requires_grad_(true);
  at::Tensor y = layer.forward(x);
  Span own = split_evenly(c.out, context.size(), context.rank());
  expect_near(y, gather_output ? d.y : d.y.narrow(1, own.begin, own.size), "output");
  y.backward(gather_output ? d.dy : d.dy.narrow(1, own.begin, own.size).contiguous());
  expect_near(x.grad(), own_slice(d.dx, context), "input gradient");
  expect_pieces(*store.parameters()[0], d.d_weight);
  if (c.bias) expect_pieces(*store.parameters()[1], d.d_bias);
}

void check_row(Mesh& mesh, const LinearCase& c, bool input_is_parallel) {
  SCOPED_TRACE(cat("row tp ", mesh.tensor().size(), " in ", c.in, " tokens ", c.tokens, " bias ", c.bias, " sequence ", c.sequence,
                   " parallel input ", input_is_parallel));
  TensorParallelContext context{&mesh.tensor(), c.sequence && mesh.tensor().size() > 1, nullptr};
  if (context.sequence_parallel && c.tokens % context.size() != 0) return;
  Dense d(c);
  ParameterStore store;
  RowParallelLinear layer(store, "layer", c.in, c.out, c.bias, input_is_parallel, context);
  store.allocate(at::kDouble, at::kCPU);
  layer.bind();
  fill(*store.parameters()[0], d.weight);
  if (c.bias) fill(*store.parameters()[1], d.bias);
  Span own = split_evenly(c.in, context.size(), context.rank());
  at::Tensor x = (input_is_parallel ? d.x.narrow(1, own.begin, own.size) : d.x).clone();
  x.requires_grad_(true);
  at::Tensor y = layer.forward(x);
  expect_near(y, own_slice(d.y, context), "output");
  y.backward(own_slice(d.dy, context).contiguous());
  expect_near(x.grad(), input_is_parallel ? d.dx.narrow(1, own.begin, own.size) : d.dx, "input gradient");
  expect_pieces(*store.parameters()[0], d.d_weight);
  if (!c.bias) return;
  Parameter& bias = *store.parameters()[1];
  EXPECT_EQ(bias.partial_over_tp, context.sequence_parallel);
  at::Tensor gradient = bias.gradient.clone();
  if (bias.partial_over_tp) mesh.tensor().all_reduce(gradient)->wait();
  expect_near(gradient, d.d_bias, "bias gradient");
}

TEST(ParallelLinear, EqualsDense) {
  for (int64_t tp : {1, 2, 3, 4, 8})
    run_thread_ranks({.tp_size = tp}, [&](Mesh& mesh) {
      for (bool bias : {false, true})
        for (bool sequence : {false, true})
          for (const LinearCase& c : std::vector<LinearCase>{
                   {24, 16, 24, bias, sequence}, {7, 13, 17, bias, sequence}, {1, 9, 11, bias, sequence}, {12, 5, 3, bias, sequence}}) {
            for (bool gather : {false, true}) check_column(mesh, c, gather);
            for (bool parallel : {false, true}) check_row(mesh, c, parallel);
          }
    });
}

// Column then row, the way an FFN uses them: one gather and one reduce-scatter under sequence parallelism, ragged token counts.
TEST(ParallelLinear, ColumnThenRow) {
  for (int64_t tp : {1, 2, 4})
    run_thread_ranks({.tp_size = tp}, [&](Mesh& mesh) {
      for (bool sequence : {false, true}) {
        int64_t tokens = sequence ? 8 : 7, h = 6, f = 16;
        TensorParallelContext context{&mesh.tensor(), sequence && tp > 1, nullptr};
        at::Tensor x = values({tokens, h}, 1), up = values({f, h}, 2), down = values({h, f}, 3), dy = values({tokens, h}, 4);
        at::Tensor middle = at::mm(x, up.t()), d_middle = at::mm(dy, down);
        ParameterStore store;
        ColumnParallelLinear first(store, "up", h, f, false, false, context);
        RowParallelLinear second(store, "down", f, h, false, true, context);
        store.allocate(at::kDouble, at::kCPU);
        first.bind();
        second.bind();
        fill(*store.parameters()[0], up);
        fill(*store.parameters()[1], down);
        at::Tensor own = own_slice(x, context).clone();
        own.requires_grad_(true);
        at::Tensor y = second.forward(first.forward(own));
        expect_near(y, own_slice(at::mm(middle, down.t()), context), "output");
        y.backward(own_slice(dy, context).contiguous());
        expect_near(own.grad(), own_slice(at::mm(d_middle, up), context), "input gradient");
        expect_pieces(*store.parameters()[0], at::mm(d_middle.t(), x));
        expect_pieces(*store.parameters()[1], at::mm(dy.t(), middle));
      }
    });
}

// Two uses before their backwards, weight gradients held back: they add up and nothing runs before flush().
TEST(ParallelLinear, DeferredWeightGradients) {
  run_thread_ranks({.tp_size = 2}, [&](Mesh& mesh) {
    WeightGradientQueue queue;
    TensorParallelContext context{&mesh.tensor(), false, &queue};
    Dense d({6, 8, 10, true, false});
    ParameterStore store;
    ColumnParallelLinear layer(store, "layer", 8, 10, true, false, context);
    store.allocate(at::kDouble, at::kCPU);
    layer.bind();
    fill(*store.parameters()[0], d.weight);
    fill(*store.parameters()[1], d.bias);
    queue.set_deferring(true);
    Span own = split_evenly(10, 2, mesh.rank());
    for (int use = 0; use < 2; ++use) {
      at::Tensor x = d.x.clone();
      x.requires_grad_(true);
      layer.forward(x).backward(d.dy.narrow(1, own.begin, own.size).contiguous());
      expect_near(x.grad(), d.dx, "input gradient");
    }
    EXPECT_FALSE(queue.empty());
    EXPECT_EQ(store.parameters()[0]->gradient.abs().max().item<double>(), 0.0);
    EXPECT_EQ(store.parameters()[0]->pending_uses, 2);
    queue.flush();
    EXPECT_EQ(store.parameters()[0]->pending_uses, 0);
    expect_pieces(*store.parameters()[0], d.d_weight * 2);
    expect_pieces(*store.parameters()[1], d.d_bias * 2);
  });
}

// 61 rows on 1..8 ranks, with and without sequence parallelism (7 tokens: the last ranks are padded), one row frozen.
TEST(VocabParallelEmbedding, EqualsDense) {
  constexpr int64_t kVocab = 61, kHidden = 5, kTokens = 7, kFrozen = 3;
  at::Tensor ids = at::empty({kTokens}, at::kLong);
  int64_t chosen[] = {0, 60, 3, 8, 8, 31, 3};
  for (int64_t i = 0; i < kTokens; ++i) ids[i].fill_(chosen[i]);
  at::Tensor table = values({kVocab, kHidden}, 6), dy = values({kTokens, kHidden}, 7);
  at::Tensor d_table = at::zeros({kVocab, kHidden}, at::kDouble);
  for (int64_t i = 0; i < kTokens; ++i)
    if (chosen[i] != kFrozen) d_table[chosen[i]].add_(dy[i]);
  for (int64_t tp = 1; tp <= 8; ++tp)
    for (bool sequence : {false, true})
      run_thread_ranks({.tp_size = tp}, [&](Mesh& mesh) {
        SCOPED_TRACE(cat("tp ", tp, " sequence ", sequence));
        TensorParallelContext context{&mesh.tensor(), sequence && tp > 1, nullptr};
        ParameterStore store;
        Parameter& p = store.declare(shard_parameter("table", {kVocab, kHidden}, 0, context));
        store.allocate(at::kDouble, at::kCPU);
        fill(p, table);
        EXPECT_EQ(p.local_shape[0], split_evenly(kVocab, tp, mesh.rank()).size);
        at::Tensor anchor = at::zeros({1}, at::kDouble);
        anchor.requires_grad_(true);
        at::Tensor y = vocab_parallel_embedding(anchor, ids, p, kFrozen, context);
        expect_near(y, own_slice(table.index_select(0, ids), context), "output");
        y.backward(own_slice(dy, context).contiguous());
        expect_pieces(p, d_table);
      });
}

TEST(SelectRows, IsIndexSelect) {
  at::Tensor x = values({9, 5}, 11), rows = at::empty({4}, at::kLong);
  int64_t chosen[] = {7, 0, 3, 8};
  for (int64_t i = 0; i < 4; ++i) rows[i].fill_(chosen[i]);
  for (auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    at::Tensor own = x.to(type).clone(), plain = own.clone(), dy = values({4, 5}, 12).to(type);
    own.requires_grad_(true);
    plain.requires_grad_(true);
    at::Tensor y = select_rows(own, rows), wanted = plain.index_select(0, rows);
    EXPECT_TRUE(y.detach().equal(wanted.detach()));
    y.backward(dy);
    wanted.backward(dy);
    EXPECT_TRUE(own.grad().equal(plain.grad()));
    EXPECT_TRUE(select_rows(own.detach(), rows).equal(y.detach()));
  }
}

}  // namespace
}  // namespace plait
