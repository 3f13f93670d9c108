// Message styles and overlap of the parallel layers: collective or p2p, beside the products or waited for at once. With whole numbers
// every product is exact, so everything must be bit-equal; with fractions the pieces of a product may round differently.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "plait/base/random.h"
#include "plait/base/text.h"
#include "plait/comm/launch.h"
#include "plait/comm/ring_group.h"
#include "plait/tensor_parallel/cross_entropy.h"
#include "plait/tensor_parallel/embedding.h"
#include "plait/tensor_parallel/linear.h"
#include "tests/comm/recording_group.h"

namespace plait {
namespace {

struct Style {
  bool p2p, overlap;
};
const std::vector<Style> kStyles{{false, true}, {false, false}, {true, true}, {true, false}};

struct LayerCase {
  bool column, sequence;
  int64_t rows;  // tokens, or of one rank under sequence parallelism
  int64_t in, out;
};

at::Tensor values(at::IntArrayRef sizes, uint64_t salt, at::ScalarType type, bool whole_numbers) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  double* p = x.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    uint64_t bits = mix64(salt * 1000003 + static_cast<uint64_t>(i));
    p[i] = whole_numbers ? static_cast<double>(bits % 7) - 3 : static_cast<double>(bits >> 11) * 0x1p-52 - 1.0;
  }
  return x.to(type);
}

// Output, input gradient, weight and bias gradients of one layer in one style.
std::vector<at::Tensor> run_layer(Mesh& mesh, const LayerCase& c, const Style& style, at::ScalarType type, bool whole_numbers) {
  ProcessGroupPtr ring = make_ring_group(mesh.tensor());
  WeightGradientQueue queue;
  TensorParallelContext context{style.p2p ? ring.get() : &mesh.tensor(), c.sequence && mesh.tensor().size() > 1, &queue, style.overlap,
                                style.p2p};
  ParameterStore store;
  std::unique_ptr<ColumnParallelLinear> column;
  std::unique_ptr<RowParallelLinear> row;
  if (c.column) column = std::make_unique<ColumnParallelLinear>(store, "layer", c.in, c.out, true, false, context);
  else row = std::make_unique<RowParallelLinear>(store, "layer", c.in, c.out, true, true, context);
  store.allocate(type, at::kCPU);
  if (column) column->bind();
  else row->bind();
  auto salt = static_cast<uint64_t>(mesh.rank());
  for (const auto& p : store.parameters())
    p->master.copy_(values(p->local_shape, p->shard_axis < 0 ? 5 : 10 + salt, p->master.scalar_type(), whole_numbers));
  store.refresh_weights();
  int64_t n = mesh.tensor().size(), all_rows = c.sequence ? c.rows * n : c.rows;
  int64_t in = store.parameters()[0]->local_shape[1], out = store.parameters()[0]->local_shape[0];
  // What every rank holds alike must be alike.
  bool split_input = c.column && c.sequence, split_output = !c.column && c.sequence;
  at::Tensor x = values({split_input ? c.rows : all_rows, in}, c.column && !c.sequence ? 20 : 30 + salt, type, whole_numbers);
  at::Tensor dy = values({split_output ? c.rows : all_rows, out}, !c.column && !c.sequence ? 40 : 50 + salt, type, whole_numbers);
  x.requires_grad_(true);
  queue.set_deferring(style.overlap);  // both ways of a weight gradient
  at::Tensor y = column ? column->forward(x) : row->forward(x);
  y.backward(dy);
  queue.flush();
  at::NoGradGuard no_grad;
  at::Tensor evaluated = column ? column->forward(x) : row->forward(x);
  EXPECT_TRUE(at::equal(evaluated, y));
  return {y.detach(), x.grad(), store.parameters()[0]->gradient.clone(), store.parameters()[1]->gradient.clone()};
}

std::vector<LayerCase> layer_cases() {
  std::vector<LayerCase> cases;
  for (bool column : {true, false})
    for (bool sequence : {false, true})
      for (int64_t rows : {1, 3, 7, 24}) cases.push_back({column, sequence, rows, 13, 17});
  return cases;
}

TEST(Styles, WholeNumbersAreBitEqual) {
  for (int64_t tp : {1, 2, 3, 4, 5})
    run_thread_ranks({.tp_size = tp}, [&](Mesh& mesh) {
      for (auto type : {at::kDouble, at::kFloat, at::kBFloat16})
        for (const LayerCase& c : layer_cases()) {
          auto wanted = run_layer(mesh, c, kStyles[0], type, true);
          for (const Style& style : kStyles) {
            auto got = run_layer(mesh, c, style, type, true);
            for (size_t i = 0; i < got.size(); ++i)
              EXPECT_TRUE(at::equal(got[i], wanted[i]))
                  << "tp " << tp << (c.column ? " column" : " row") << " sequence " << c.sequence << " rows " << c.rows << " p2p "
                  << style.p2p << " overlap " << style.overlap << " type " << c10::toString(type) << " result " << i;
          }
        }
    });
}

TEST(Styles, FractionsDifferByRoundingOnly) {
  for (int64_t tp : {2, 3, 4})
    run_thread_ranks({.tp_size = tp}, [&](Mesh& mesh) {
      for (const LayerCase& c : layer_cases()) {
        auto wanted = run_layer(mesh, c, kStyles[0], at::kDouble, false);
        for (const Style& style : kStyles) {
          auto got = run_layer(mesh, c, style, at::kDouble, false);
          for (size_t i = 0; i < got.size(); ++i) {
            if (!style.p2p) EXPECT_TRUE(at::equal(got[i], wanted[i])) << "overlap " << style.overlap;
            else EXPECT_LE((got[i] - wanted[i]).abs().max().item<double>(), 1e-12) << "tp " << tp << " result " << i;
          }
        }
      }
    });
}

// The vocabulary-parallel parts have no product to run beside: their sums keep their bits.
TEST(Styles, VocabularyPartsAreBitEqual) {
  constexpr int64_t kVocab = 61, kHidden = 700, kTokens = 23;
  at::Tensor ids = at::arange(kTokens, at::kLong).mul(17).remainder(kVocab);
  for (int64_t tp : {2, 3, 4})
    for (bool sequence : {false, true})
      run_thread_ranks({.tp_size = tp}, [&](Mesh& mesh) {
        std::vector<at::Tensor> wanted;
        for (bool p2p : {false, true}) {
          ProcessGroupPtr ring = make_ring_group(mesh.tensor());
          TensorParallelContext context{p2p ? ring.get() : &mesh.tensor(), sequence, nullptr, true, p2p};
          ParameterStore store;
          Parameter& p = store.declare(shard_parameter("table", {kVocab, kHidden}, 0, context));
          store.allocate(at::kFloat, at::kCPU);
          store.initialize(3, true);
          at::Tensor anchor = at::zeros({1}), logits = values({kTokens, p.local_shape[0]}, 7, at::kFloat, false);
          anchor.requires_grad_(true);
          logits.requires_grad_(true);
          at::Tensor y = vocab_parallel_embedding(anchor, ids, p, -1, context);
          y.backward(values(y.sizes(), sequence ? 70 + static_cast<uint64_t>(mesh.rank()) : 60, at::kFloat, false));
          at::Tensor loss = vocab_parallel_cross_entropy(logits, ids, kVocab, 0.1, context);
          loss.sum().backward();
          std::vector<at::Tensor> got{y.detach(), p.gradient.clone(), loss.detach(), logits.grad()};
          if (!p2p) wanted = got;
          for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << "tp " << tp << " " << sequence << " " << i;
        }
      });
}

// What the switch does: the weight gradient is computed before the input gradient's message is waited for, or after.
TEST(Styles, OverlapIsAnOrder) {
  run_thread_ranks({.tp_size = 2}, [](Mesh& mesh) {
    for (bool sequence : {false, true})
      for (bool overlap : {true, false}) {
        auto log = std::make_shared<testing::OperationLog>();
        testing::RecordingGroup group(mesh.tensor(), log);
        TensorParallelContext context{&group, sequence, nullptr, overlap, false};
        ParameterStore store;
        ColumnParallelLinear layer(store, "layer", 4, 6, false, false, context);
        store.allocate(at::kDouble, at::kCPU);
        layer.bind();
        store.set_listener([&](Parameter&) { log->push_back("weight gradient"); });
        at::Tensor x = at::ones({3, 4}, at::kDouble);
        x.requires_grad_(true);
        at::Tensor y = layer.forward(x);
        log->clear();
        y.backward(at::ones_like(y));
        const std::string wait = sequence ? "wait reduce_scatter" : "wait all_reduce";
        auto place = [&](const std::string& what) { return std::find(log->begin(), log->end(), what) - log->begin(); };
        ASSERT_EQ(testing::count_of(*log, wait), 1) << join(*log);
        EXPECT_EQ(place("weight gradient") < place(wait), overlap) << join(*log);
        if (sequence) {
          EXPECT_EQ(place("wait all_gather") > place("start reduce_scatter"), overlap) << join(*log);
        }
      }
  });
}

// p2p: no collective is left; a gather's first message is on its way before the first product is needed, one product between two messages.
TEST(Styles, P2pSendsAndReceives) {
  run_thread_ranks({.tp_size = 4}, [](Mesh& mesh) {
    for (bool sequence : {false, true}) {
      auto log = std::make_shared<testing::OperationLog>();
      testing::RecordingGroup group(mesh.tensor(), log);
      ProcessGroupPtr ring = make_ring_group(group);
      TensorParallelContext context{ring.get(), sequence, nullptr, true, true};
      ParameterStore store;
      ColumnParallelLinear up(store, "up", 8, 12, true, false, context);
      RowParallelLinear down(store, "down", 12, 8, true, true, context);
      store.allocate(at::kDouble, at::kCPU);
      up.bind();
      down.bind();
      at::Tensor x = at::ones({sequence ? 2 : 8, 8}, at::kDouble);
      x.requires_grad_(true);
      at::Tensor y = down.forward(up.forward(x));
      y.backward(at::ones_like(y));
      for (const char* verb : {"all_reduce", "all_gather", "reduce_scatter", "broadcast"})
        EXPECT_EQ(testing::count_of(*log, cat("start ", verb)), 0) << verb;
      // Each of the pieces goes to (or comes from) three others: forward sum and backward sum, each followed by a sharing out; or with
      // sequence parallelism gather, sum, and backward gather, the gather of x again, sum.
      EXPECT_EQ(testing::count_of(*log, "start send"), sequence ? 15 : 12);
      EXPECT_EQ(testing::count_of(*log, "start recv"), sequence ? 15 : 12);
      EXPECT_EQ(testing::count_of(*log, "wait recv"), sequence ? 15 : 12);
      EXPECT_EQ(testing::count_of(*log, "wait send"), sequence ? 15 : 12);
    }
  });
}

}  // namespace
}  // namespace plait
