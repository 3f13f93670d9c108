// Loading: a rank reads its own pieces. At no moment do its tensors hold much more than what it keeps, let alone the whole model.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "plait/comm/launch.h"
#include "plait/tensor/allocator.h"
#include "plait/train/load_model.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigJson = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128,
  "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1024,
  "max_position_embeddings": 64, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";

struct LoadedRank {
  int64_t kept_bytes = 0, peak_bytes = 0;  // of tensors, beyond what was there before
  int64_t largest_bytes = 0;               // of this rank's largest parameter
};

class LoadMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    install_caching_allocator();
    std::string pattern = (fs::temp_directory_path() / "plait-load-XXXXXX").string();
    ASSERT_TRUE(::mkdtemp(pattern.data()));
    folder_ = pattern;
    fs::create_directories(folder_ + "/shape");
    std::ofstream(folder_ + "/shape/config.json") << kConfigJson;
    in_.config.task = Task::kTextGeneration;
    in_.config.model.path = folder_ + "/shape";
    in_.config.model.init = "random";
    in_.shape = read_model_shape(folder_ + "/shape");
    in_.head = {Task::kTextGeneration, 0, 0};
    run_thread_ranks({}, [&](Mesh& mesh) {
      auto model = load_model(in_, mesh, at::kCPU, /*training=*/false, [](const std::string&) {});
      for (const auto& p : model->store.parameters()) whole_bytes_ += p->numel * 4;
      export_folder(*model, in_, mesh, folder_ + "/weights");
    });
    in_.config.model.path = folder_ + "/weights";
    in_.config.model.init = "pretrained";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The counters are the process's: the ranks load one after the other.
  std::vector<LoadedRank> load(const MeshLayout& layout, bool training) {
    std::vector<LoadedRank> ranks(static_cast<size_t>(layout.world_size()));
    run_thread_ranks(layout, [&](Mesh& mesh) {
      std::unique_ptr<ParallelModel> model;
      for (int64_t turn = 0; turn < mesh.world().size(); ++turn) {
        mesh.world().barrier();
        if (turn == mesh.rank()) {
          reset_peak_memory();
          int64_t before = memory_stats().live_bytes;
          model = load_model(in_, mesh, at::kCPU, training, [](const std::string&) {});
          LoadedRank& mine = ranks[static_cast<size_t>(mesh.rank())];
          mine.kept_bytes = memory_stats().live_bytes - before;
          mine.peak_bytes = memory_stats().peak_bytes - before;
          for (const auto& p : model->store.parameters()) mine.largest_bytes = std::max(mine.largest_bytes, p->numel * 4);
        }
        mesh.world().barrier();
      }
    });
    return ranks;
  }

  std::string folder_;
  RunInputs in_;
  int64_t whole_bytes_ = 0;
};

TEST_F(LoadMemory, ARankHoldsItsShardAndNoMore) {
  int64_t whole = load({1, 1, 1}, false)[0].kept_bytes;
  EXPECT_GE(whole, whole_bytes_);
  for (const MeshLayout& layout : {MeshLayout{1, 1, 2}, MeshLayout{1, 2, 1}, MeshLayout{1, 2, 2}}) {
    int64_t pieces = layout.pp_size * layout.tp_size;
    for (const LoadedRank& rank : load(layout, false)) {
      // Norms are on every tensor rank; the two ends of a pipeline hold a table each.
      EXPECT_LT(rank.kept_bytes, whole / pieces * 5 / 4) << layout.pp_size << " x " << layout.tp_size;
      EXPECT_LE(rank.peak_bytes, rank.kept_bytes + rank.largest_bytes + (64 << 10)) << layout.pp_size << " x " << layout.tp_size;
      EXPECT_LT(rank.largest_bytes, whole_bytes_ / 8);  // the bound above would not see a whole model else
    }
  }
}

// A model that is only evaluated has no gradients: what it keeps is its weights, 1/4 of what AdamW's training keeps.
TEST_F(LoadMemory, OnlyTrainingHasGradients) {
  int64_t evaluated = load({1, 1, 1}, false)[0].kept_bytes, trained = load({1, 1, 1}, true)[0].kept_bytes;
  EXPECT_LT(evaluated, whole_bytes_ * 9 / 8);
  EXPECT_GT(trained, whole_bytes_ * 4);
  run_thread_ranks({}, [&](Mesh& mesh) {
    for (bool training : {false, true}) {
      auto model = load_model(in_, mesh, at::kCPU, training, [](const std::string&) {});
      EXPECT_EQ(model->store.flat_gradients().defined(), training);
    }
  });
}

// With gradients and optimizer states a rank keeps more, and still needs no more than that on its way.
TEST_F(LoadMemory, TrainingNeedsNoMoreOnItsWay) {
  int64_t whole = load({1, 1, 1}, true)[0].kept_bytes;
  for (const LoadedRank& rank : load({1, 1, 2}, true)) {
    EXPECT_LT(rank.kept_bytes, whole * 5 / 8);
    EXPECT_LE(rank.peak_bytes, rank.kept_bytes + rank.largest_bytes + (64 << 10));
  }
}

}  // namespace
}  // namespace plait
