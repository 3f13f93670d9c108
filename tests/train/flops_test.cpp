// Counted by hand for small shapes; the rate of matrix products is a plausible number.
#include "plait/train/flops.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>

#include "plait/comm/launch.h"

namespace plait {
namespace {

// Rows of token ids from a file of the data reader's own form.
Dataset rows_of(const std::string& lines, Task task, const ModelShape& shape, int64_t num_classes = 0) {
  std::string path = ::testing::TempDir() + cat("plait_flops_", ::getpid(), ".jsonl");
  std::ofstream(path) << lines;
  DataFileConfig file;
  file.file = path;
  LabelMap labels;
  for (int64_t i = 0; i < num_classes; ++i) labels.names.push_back(cat(i));
  Dataset rows = load_dataset(file, task, {}, nullptr, shape, &labels, {});
  std::filesystem::remove(path);
  return rows;
}

ModelShape small_shape() {
  ModelShape s;
  s.family = Family::kLlama;
  s.vocab_size = 10;
  s.hidden_size = 4;
  s.num_layers = 2;
  s.num_heads = 2;
  s.num_kv_heads = 1;
  s.head_size = 2;
  s.ffn_size = 6;
  s.gated_ffn = true;
  s.max_positions = 16;
  return s;
}

TEST(StepFlops, CausalLanguageModel) {
  ModelShape shape = small_shape();
  Dataset rows = rows_of("{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5]}\n", Task::kTextGeneration, shape);
  // A layer: q 4x4, k and v 4x2 each, out 4x4, three 4x6: 120 weights. 5 tokens, 2 layers. Head: 3 targets of 5 tokens, 40 weights.
  double products = 6.0 * (5 * 2 * 120 + 3 * 40);
  // Pairs: 3 * 4 / 2 + 2 * 3 / 2 = 9 in each of 2 layers; 12 * 2 heads * 2.
  double attention = 12.0 * 4 * 9 * 2;
  const int64_t both[] = {0, 1}, second[] = {1};
  HeadOptions head;
  EXPECT_DOUBLE_EQ(step_flops(shape, head, rows, both), products + attention);
  EXPECT_DOUBLE_EQ(step_flops(shape, head, rows, second), 6.0 * (2 * 2 * 120 + 40) + 12.0 * 4 * 3 * 2);
  shape.sliding_window = 2;  // the third token of the first row sees two
  shape.sliding_window_first_layer = 1;
  EXPECT_DOUBLE_EQ(step_flops(shape, head, rows, both), products + 12.0 * 4 * (9 + 8));
  shape.sliding_window.reset();
  shape.causal = false;
  EXPECT_DOUBLE_EQ(step_flops(shape, head, rows, both), products + 12.0 * 4 * (9 + 4) * 2);
}

TEST(MatrixRate, IsMeasuredByAllRanks) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    double rate = measure_matrix_rate(mesh, at::kCPU, at::kFloat);
    if (!(rate > 1e8 && rate < 1e16)) throw std::runtime_error(cat("FLOP/s: ", rate));
  });
}

}  // namespace
}  // namespace plait
