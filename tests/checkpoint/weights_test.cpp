// Loading: names as different folders spell them, types, pieces of every kind, and the refusals with their names.
#include "plait/checkpoint/weights.h"

#include <ATen/ATen.h>

#include "tests/checkpoint/test_folder.h"

namespace plait {
namespace {

using namespace test;

Parameter parameter(const std::string& name, std::vector<int64_t> shape, bool transposed = false, int64_t axis = -1,
                    std::vector<ShardPiece> pieces = {}) {
  Parameter p;
  p.name = name;
  p.global_shape = std::move(shape);
  p.transposed = transposed;
  p.shard_axis = axis;
  p.pieces = std::move(pieces);
  p.local_shape = stored_global_shape(p);
  if (axis >= 0) {
    int64_t size = 0;
    for (const auto& piece : p.pieces) size += piece.size;
    p.local_shape[static_cast<size_t>(axis)] = size;
  }
  return p;
}

struct Loaded {
  ParameterStore store;
  LoadReport report;
};

// A store of the parameters, loaded from a folder that holds `tensors`.
void load(Loaded& out, const std::map<std::string, FileTensor>& tensors, std::vector<Parameter> parameters, WeightLoadOptions options = {},
          at::ScalarType type = at::kFloat, const std::string& padding = "") {
  TestFolder dir;
  write_bytes(dir / "model.safetensors", safetensors_bytes(tensors, padding));
  for (auto& p : parameters) {
    if (options.only.empty()) options.all.push_back({p.name, p.global_shape});
    out.store.declare(std::move(p));
  }
  out.store.allocate(type, at::kCPU);
  out.store.flat_masters().fill_(-1);
  SafetensorsFolder folder(dir.path());
  out.report = load_weights(out.store, folder, options);
}

at::Tensor master(const Loaded& loaded, size_t i = 0) { return loaded.store.parameters()[i]->master; }

at::Tensor ramp_tensor(std::vector<int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return at::arange(n, at::kFloat).view(shape);
}

TEST(Weights, PiecesOfEveryKind) {
  at::Tensor whole = ramp_tensor({6, 4});  // the file's
  auto file = std::map<std::string, FileTensor>{{"w", ramp({6, 4})}};
  struct Row {
    bool transposed;
    int64_t axis;
    std::vector<ShardPiece> pieces;
  };
  std::vector<Row> rows{{false, -1, {}},
                        {false, 0, {{0, 2, 3}}},
                        {false, 1, {{0, 1, 2}}},
                        {false, 0, {{0, 0, 1}, {1, 3, 2}}},
                        {false, 1, {{0, 3, 1}, {1, 0, 1}}},
                        {true, -1, {}},
                        {true, 0, {{0, 2, 2}}},
                        {true, 1, {{0, 4, 2}}},
                        {true, 0, {{0, 3, 1}, {1, 0, 2}}},
                        {true, 1, {{0, 0, 1}, {1, 2, 1}, {2, 5, 1}}},
                        {false, 0, {{0, 6, 0}}}};
  for (size_t i = 0; i < rows.size(); ++i) {
    Loaded loaded;
    load(loaded, file, {parameter("w", {6, 4}, rows[i].transposed, rows[i].axis, rows[i].pieces)});
    at::Tensor stored = rows[i].transposed ? whole.t() : whole;
    at::Tensor expected = stored;
    if (rows[i].axis >= 0) {
      std::vector<at::Tensor> parts;
      for (const auto& piece : rows[i].pieces) parts.push_back(stored.narrow(rows[i].axis, piece.global_begin, piece.size));
      expected = at::cat(parts, rows[i].axis);
    }
    EXPECT_TRUE(at::equal(master(loaded), expected)) << "row " << i << "\n" << master(loaded) << "\n" << expected;
  }
}

TEST(Weights, TypesAndUnalignedData) {
  std::vector<double> values{1.0, -2.5, 0.15625, 3e4};
  std::vector<float> floats(values.begin(), values.end());
  std::vector<c10::Half> halves(floats.begin(), floats.end());
  std::vector<c10::BFloat16> brains(floats.begin(), floats.end());
  auto wide = std::map<std::string, FileTensor>{{"f16", file_tensor("F16", {4}, halves)},
                                                {"bf16", file_tensor("BF16", {4}, brains)},
                                                {"f32", file_tensor("F32", {4}, floats)},
                                                {"f64", file_tensor("F64", {4}, values)}};
  for (auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const char* padding : {"", " ", "   "}) {
      Loaded loaded;
      load(loaded, wide, {parameter("f16", {4}), parameter("bf16", {4}), parameter("f32", {4}), parameter("f64", {4})}, {}, type, padding);
      for (size_t i = 0; i < 4; ++i) {
        at::Tensor expected = at::tensor(at::ArrayRef<double>(values), at::kDouble);
        if (i == 1) expected = expected.to(at::kBFloat16).to(at::kDouble);
        EXPECT_TRUE(at::equal(master(loaded, i).to(at::kDouble), expected)) << i;
        EXPECT_TRUE(at::equal(loaded.store.parameters()[i]->weight, master(loaded, i).to(type))) << i;
      }
    }
  }
  auto integers = file_tensor("I32", {1}, std::vector<int32_t>{1});
  expect_error(ExitCode::kCheckpoint, {"\"w\"", "I32", "BF16"}, [&] {
    Loaded loaded;
    load(loaded, {{"w", integers}}, {parameter("w", {1})});
  });
}

TEST(Weights, NamesOfDifferentFolders) {
  Loaded bert;
  load(bert,
       {{"embeddings.LayerNorm.gamma", ramp({2}, 1)},
        {"embeddings.LayerNorm.beta", ramp({2}, 3)},
        {"embeddings.position_ids", file_tensor("I64", {1}, std::vector<int64_t>{0})},
        {"classifier.weight", ramp({2}, 5)},
        {"cls.predictions.bias", ramp({9})}},
       {parameter("bert.embeddings.LayerNorm.weight", {2}), parameter("bert.embeddings.LayerNorm.bias", {2}),
        parameter("classifier.weight", {2})});
  EXPECT_EQ(master(bert, 0)[0].item<float>(), 1);
  EXPECT_EQ(master(bert, 1)[0].item<float>(), 3);
  EXPECT_EQ(master(bert, 2)[0].item<float>(), 5);
  EXPECT_EQ(bert.report.ignored, std::vector<std::string>{"cls.predictions.bias"});
  EXPECT_NE(bert.report.notice("minilm").find("cls.predictions.bias"), std::string::npos);
  Loaded gpt2;
  load(gpt2,
       {{"h.0.attn.bias", ramp({1, 1})},
        {"h.0.attn.masked_bias", ramp({})},
        {"h.0.attn.c_attn.bias", ramp({2}, 7)},
        {"wte.weight", ramp({3, 2})},
        {"lm_head.weight", ramp({3, 2})}},
       {parameter("transformer.h.0.attn.c_attn.bias", {2}), parameter("transformer.wte.weight", {3, 2})});
  EXPECT_EQ(master(gpt2, 0)[0].item<float>(), 7);
  EXPECT_EQ(gpt2.report.notice("gpt2"), "");
  Loaded llama;
  load(llama, {{"model.layers.0.self_attn.rotary_emb.inv_freq", ramp({2})}, {"norm.weight", ramp({2}, 8)}},
       {parameter("model.norm.weight", {2})});
  EXPECT_EQ(master(llama, 0)[0].item<float>(), 8);
}

TEST(Weights, MissingUnexpectedAndMisshapen) {
  auto refused = [](const std::map<std::string, FileTensor>& tensors, std::vector<Parameter> parameters,
                    const std::vector<std::string>& words, WeightLoadOptions options = {}) {
    expect_error(ExitCode::kCheckpoint, words, [&] {
      Loaded loaded;
      load(loaded, tensors, std::move(parameters), options);
    });
  };
  refused({{"a", ramp({2})}}, {parameter("a", {2}), parameter("b", {2})}, {"1 tensor is missing", "\"b\""});
  refused({{"a", ramp({2})}, {"c", ramp({2})}}, {parameter("a", {2}), parameter("b", {2})}, {"missing", "\"b\"", "no place", "\"c\""});
  refused({{"a", ramp({2, 3})}}, {parameter("a", {3, 2})}, {"\"a\"", "[2, 3]", "[3, 2]"});
  refused({{"a", ramp({2})}}, {parameter("a", {2}), parameter("lm_head.weight", {2})}, {"lm_head.weight", "tie_word_embeddings"});
  refused({{"bert.a", ramp({2})}, {"a", ramp({2})}}, {parameter("bert.a", {2})}, {"\"a\"", "no place"});
  refused({{"wte.weight", ramp({2, 2})}, {"lm_head.weight", ramp({2, 2}, 1)}}, {parameter("transformer.wte.weight", {2, 2})},
          {"tied", "lm_head.weight", "differ"});
  refused({{"a", ramp({2})}, {"lm_head.weight", ramp({2})}}, {parameter("a", {2})}, {"lm_head.weight", "no place"});
  std::map<std::string, FileTensor> many;
  for (int i = 0; i < 25; ++i) many[cat("extra.", i)] = ramp({1});
  many["a"] = ramp({1});
  refused(many, {parameter("a", {1})}, {"25 tensors", "and 15 more"});
}

TEST(Weights, SeededHeadAndHeadFile) {
  std::vector<Parameter> parameters{parameter("bert.a", {2}), parameter("bert.pooler.dense.bias", {2}),
                                    parameter("classifier.weight", {2})};
  WeightLoadOptions options;
  options.may_be_missing = {"classifier", "bert.pooler"};
  Loaded loaded;
  load(loaded, {{"a", ramp({2}, 1)}}, parameters, options);
  EXPECT_EQ(loaded.report.seeded, (std::vector<std::string>{"bert.pooler.dense.bias", "classifier.weight"}));
  EXPECT_NE(loaded.report.notice("minilm").find("classifier.weight"), std::string::npos);
  EXPECT_EQ(master(loaded, 2)[0].item<float>(), -1);

  TestFolder dir;
  write_bytes(dir / "head.safetensors", safetensors_bytes({{"head.w", ramp({2}, 4)}, {"more", ramp({1})}}));
  WeightLoadOptions head;
  head.only = {"classifier"};
  head.aliases = {{"classifier.weight", "head.w"}};
  auto file = SafetensorsFolder::of_file(dir / "head.safetensors");
  load_weights(loaded.store, file, head);
  EXPECT_EQ(master(loaded, 2)[1].item<float>(), 5);
  EXPECT_EQ(master(loaded, 0)[0].item<float>(), 1);
  head.aliases.clear();
  expect_error(ExitCode::kCheckpoint, {"head.safetensors", "classifier.weight", "missing"},
               [&] { load_weights(loaded.store, file, head); });
}

// Every rank checks the whole model, also what it does not own.
TEST(Weights, OtherRanksTensorsAreChecked) {
  WeightLoadOptions options;
  options.all = {{"other", {3}}};
  expect_error(ExitCode::kCheckpoint, {"\"other\"", "[2]", "[3]"}, [&] {
    Loaded loaded;
    load(loaded, {{"a", ramp({1})}, {"other", ramp({2})}}, {parameter("a", {1})}, options);
  });
  Loaded loaded;
  load(loaded, {{"a", ramp({1}, 2)}, {"other", ramp({3})}}, {parameter("a", {1})}, options);
  EXPECT_EQ(master(loaded, 0)[0].item<float>(), 2);
}

}  // namespace
}  // namespace plait
