// Export by many ranks: whatever the layout, the folder is byte for byte what one process writes, which for a float32 model is byte
// for byte the file that Hugging Face wrote. A failure on one rank reaches all and leaves the previous folder alone.
#include "plait/checkpoint/export.h"

#include <ATen/ATen.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>

#include "plait/checkpoint/model_folder.h"
#include "plait/comm/launch.h"
#include "plait/plan/partition.h"
#include "tests/checkpoint/test_folder.h"

namespace plait {
namespace {

using namespace test;

std::vector<TensorSpec> specs_of(const std::string& folder) {
  std::vector<TensorSpec> all;
  for (const auto& tensor : read_safetensors_header(folder + "/model.safetensors").tensors) all.push_back({tensor.name, tensor.shape});
  return all;
}

// Places tensor `i` on this rank in one of the ways a model does; nullopt: another stage's.
std::optional<Parameter> place(const TensorSpec& spec, int64_t i, const MeshLayout& layout, Coordinate at) {
  Parameter p;
  p.name = spec.name;
  p.global_shape = spec.shape;
  bool tied = spec.name.find("wte") != std::string::npos || spec.name.find("embed_tokens") != std::string::npos;
  int64_t stage = tied ? 0 : i % layout.pp_size;
  if (at.pp != stage && !(tied && at.pp == layout.pp_size - 1)) return std::nullopt;
  p.owner = at.pp == stage;
  p.transposed = spec.shape.size() == 2 &&
                 (spec.name.ends_with("c_attn.weight") || spec.name.ends_with("c_proj.weight") || spec.name.ends_with("c_fc.weight"));
  p.local_shape = stored_global_shape(p);
  bool replicated = spec.shape.size() == 1 && i % 2 == 0;
  if (replicated) {
    p.owner = p.owner && at.tp == 0;
    return p;
  }
  p.shard_axis = spec.shape.size() == 2 ? i % 2 : 0;
  auto& size = p.local_shape[static_cast<size_t>(p.shard_axis)];
  int64_t parts = i % 3 == 0 ? 2 : 1;               // a fused matrix: each part is split over the tensor ranks
  bool copies = layout.tp_size == 4 && i % 5 == 0;  // fewer shards than ranks: neighbours hold the same one
  Span part_shard{};
  int64_t local = 0;
  for (int64_t part = 0; part < parts; ++part) {
    Span whole = split_evenly(size, parts, part);
    part_shard = copies ? split_evenly(whole.size, 2, at.tp / 2) : split_evenly(whole.size, layout.tp_size, at.tp);
    p.pieces.push_back({local, whole.begin + part_shard.begin, part_shard.size});
    local += part_shard.size;
  }
  size = local;
  if (copies) p.owner = p.owner && at.tp % 2 == 0;
  return p;
}

void build(ParameterStore& store, const std::vector<TensorSpec>& all, const Mesh& mesh, at::ScalarType type = at::kFloat) {
  for (size_t i = 0; i < all.size(); ++i)
    if (auto p = place(all[i], static_cast<int64_t>(i), mesh.layout(), mesh.coordinate())) store.declare(std::move(*p));
  store.allocate(type, at::kCPU);
}

void import_and_export(Mesh& mesh, const std::string& from, const ExportOptions& options, at::ScalarType type = at::kFloat) {
  auto all = specs_of(from);
  ParameterStore store;
  build(store, all, mesh, type);
  WeightLoadOptions load;
  load.all = all;
  load_weights(store, SafetensorsFolder(from), load);
  export_model(store, all, mesh, options);
}

const std::vector<MeshLayout> kLayouts{{1, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 1, 1}, {2, 2, 2},
                                       {1, 1, 3}, {1, 3, 2}, {1, 1, 4}, {3, 1, 1}, {1, 1, 5}};

TEST(ExportRanks, ByteEqualToTheSourceInEveryLayout) {
  for (const char* name : {"bert", "gpt2", "llama", "llama-tied"}) {
    std::string source = PLAIT_TEST_DATA "/golden/models/" + std::string(name);
    std::string expected = read_bytes(source + "/model.safetensors");
    for (const auto& layout : kLayouts) {
      TestFolder dir;
      ExportOptions options;
      options.folder = dir / "output";
      options.config_json = read_bytes(source + "/config.json");
      options.files_to_copy = {source + "/golden.json"};
      run_thread_ranks(layout, [&](Mesh& mesh) { import_and_export(mesh, source, options); });
      EXPECT_TRUE(read_bytes(dir / "output/model.safetensors") == expected)
          << name << " dp " << layout.dp_size << " pp " << layout.pp_size << " tp " << layout.tp_size;
      EXPECT_EQ(read_bytes(dir / "output/config.json"), options.config_json);
      EXPECT_EQ(read_bytes(dir / "output/golden.json"), read_bytes(source + "/golden.json"));
    }
  }
}

TEST(ExportRanks, ShardsAndTypesDoNotDependOnTheLayout) {
  std::string source = PLAIT_TEST_DATA "/golden/models/gpt2";
  for (auto dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    std::map<std::string, std::string> first;
    for (const auto& layout : {MeshLayout{1, 1, 1}, MeshLayout{1, 2, 2}, MeshLayout{2, 1, 3}}) {
      TestFolder dir;
      ExportOptions options;
      options.folder = dir / "output";
      options.config_json = "{}";
      options.dtype = dtype;
      options.max_shard_bytes = 20000;
      run_thread_ranks(layout,
                       [&](Mesh& mesh) { import_and_export(mesh, source, options, layout.tp_size == 3 ? at::kDouble : at::kFloat); });
      std::map<std::string, std::string> files;
      for (const auto& item : std::filesystem::directory_iterator(options.folder))
        files[item.path().filename().string()] = read_bytes(item.path().string());
      EXPECT_GT(files.size(), 4u);
      EXPECT_TRUE(files.count("model.safetensors.index.json"));
      if (first.empty()) first = files;
      EXPECT_TRUE(files == first);
      // What was written is what the masters round to.
      SafetensorsFolder before(source), after(options.folder);
      EXPECT_EQ(before.names(), after.names());
      for (const auto& name : before.names()) {
        auto a = before.find(name).value(), b = after.find(name).value();
        at::Tensor values = at::from_blob(const_cast<std::byte*>(a.data), a.shape, at::kFloat);
        auto type = dtype == DType::kBFloat16 ? at::kBFloat16 : dtype == DType::kFloat16 ? at::kHalf : at::kDouble;
        at::Tensor rounded = values.to(type).contiguous();
        EXPECT_EQ(std::memcmp(rounded.const_data_ptr(), b.data, static_cast<size_t>(b.num_bytes)), 0) << name;
      }
    }
  }
}

// Runs an export that must fail on every rank, over a good folder that must survive.
void expect_failure(const MeshLayout& layout, ExitCode code, const std::vector<std::string>& words,
                    const std::function<void(Mesh&, const ExportOptions&)>& body) {
  std::string source = PLAIT_TEST_DATA "/golden/models/llama";
  TestFolder dir;
  ExportOptions options;
  options.folder = dir / "output";
  options.config_json = "{}";
  run_thread_ranks(layout, [&](Mesh& mesh) { import_and_export(mesh, source, options); });
  std::atomic<int64_t> thrown = 0;
  run_thread_ranks(layout, [&](Mesh& mesh) {
    expect_error(code, words, [&] { body(mesh, options); });
    ++thrown;
  });
  EXPECT_EQ(thrown, layout.world_size());
  EXPECT_TRUE(read_bytes(dir / "output/model.safetensors") == read_bytes(source + "/model.safetensors"));
  size_t left = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(dir.path())) ++left;
  EXPECT_EQ(left, 1u) << "temporary folder left behind";
}

TEST(ExportRanks, OverflowOnOneRankStopsAll) {
  for (int64_t bad = 0; bad < 4; ++bad) {
    expect_failure({1, 2, 2}, ExitCode::kNonFinite, {"beyond the range of F16", "float32 or bfloat16"},
                   [&](Mesh& mesh, ExportOptions options) {
                     auto all = specs_of(PLAIT_TEST_DATA "/golden/models/llama");
                     ParameterStore store;
                     build(store, all, mesh);
                     if (mesh.rank() == bad) {
                       for (const auto& p : store.parameters())
                         if (p->owner && p->numel > 0) p->master.fill_(70000);
                     }
                     options.dtype = DType::kFloat16;
                     export_model(store, all, mesh, options);
                   });
  }
}

TEST(ExportRanks, NoSpaceIsSaidBeforeDataIsWritten) {
  // A file size limit stands for the full disk: the reservation fails in the same call.
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto old_handler = signal(SIGXFSZ, SIG_IGN);
  expect_failure({2, 1, 2}, ExitCode::kResource, {"reserve", "bytes for"}, [&](Mesh& mesh, const ExportOptions& options) {
    if (mesh.rank() == 0) {
      struct rlimit small = before;
      small.rlim_cur = 100000;
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    mesh.world().barrier();
    struct Restore {
      Mesh& mesh;
      const struct rlimit& limit;
      ~Restore() {
        if (mesh.rank() == 0) setrlimit(RLIMIT_FSIZE, &limit);
      }
    } restore{mesh, before};
    import_and_export(mesh, PLAIT_TEST_DATA "/golden/models/llama", options);
  });
  signal(SIGXFSZ, old_handler);
}

TEST(ExportRanks, MissingSideFileStopsAll) {
  expect_failure({1, 2, 1}, ExitCode::kCheckpoint, {"/nowhere/tokenizer.json"}, [&](Mesh& mesh, ExportOptions options) {
    options.files_to_copy = {"/nowhere/tokenizer.json"};
    import_and_export(mesh, PLAIT_TEST_DATA "/golden/models/llama", options);
  });
}

TEST(ExportRanks, EveryElementHasOneOwner) {
  TestFolder dir;
  ExportOptions options;
  options.folder = dir / "output";
  options.config_json = "{}";
  std::vector<TensorSpec> all{{"w", {4, 4}}};
  for (int64_t owners : {0, 2}) {
    std::atomic<int64_t> thrown = 0;
    run_thread_ranks({1, 1, 2}, [&](Mesh& mesh) {
      ParameterStore store;
      Parameter p;
      p.name = "w";
      p.global_shape = p.local_shape = {4, 4};
      p.owner = owners == 2;
      store.declare(std::move(p));
      store.allocate(at::kFloat, at::kCPU);
      EXPECT_ANY_THROW(export_model(store, all, mesh, options));
      ++thrown;
    });
    EXPECT_EQ(thrown, 2);
    EXPECT_FALSE(std::filesystem::exists(options.folder));
  }
}

}  // namespace
}  // namespace plait
