// Counted by hand for small shapes and for clocks that are known.
#include "plait/train/flops.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
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

// Rows as tokenizers write them for a fixed length: the masked tail is not computed, and does not count.
TEST(StepFlops, PaddingDoesNotCount) {
  ModelShape shape = small_shape();
  HeadOptions head;
  const int64_t both[] = {0, 1};
  Dataset rows = rows_of("{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5]}\n", Task::kTextGeneration, shape);
  Dataset padded = rows_of(
      "{\"input_ids\": [1, 2, 3, 0, 0, 0], \"attention_mask\": [1, 1, 1, 0, 0, 0], \"labels\": [1, 2, 3, -100, -100, -100]}\n"
      "{\"input_ids\": [4, 5, 0, 0, 0, 0], \"attention_mask\": [1, 1, 0, 0, 0, 0], \"labels\": [4, 5, -100, -100, -100, -100]}\n",
      Task::kTextGeneration, shape);
  EXPECT_DOUBLE_EQ(step_flops(shape, head, padded, both), step_flops(shape, head, rows, both));
  shape.causal = false;
  head = {Task::kTextClassification, 3, 0};
  rows = rows_of("{\"input_ids\": [1, 2, 3], \"labels\": 1}\n{\"input_ids\": [4, 5], \"labels\": 2}\n", head.task, shape, 3);
  padded = rows_of(
      "{\"input_ids\": [1, 2, 3, 0], \"attention_mask\": [1, 1, 1, 0], \"labels\": 1}\n"
      "{\"input_ids\": [4, 5, 0, 0], \"attention_mask\": [1, 1, 0, 0], \"labels\": 2}\n",
      head.task, shape, 3);
  EXPECT_DOUBLE_EQ(step_flops(shape, head, padded, both), step_flops(shape, head, rows, both));
  EXPECT_DOUBLE_EQ(step_flops(shape, head, rows, both), 6.0 * (5 * 2 * 120 + 2 * 4 * (4 + 3)) + 12.0 * 4 * (9 + 4) * 2);
}

// Products of 1024 x 1024 matrices by clocks that go on by a fixed step at each look: what is summed over the ranks, and what the best is of.
TEST(MatrixRate, IsTheBestWindowOfAllRanksTogether) {
  const double product = 2.0 * 1024 * 1024 * 1024;
  run_thread_ranks({2, 1, 1}, [&](Mesh& mesh) {
    double now = 0;
    int looks = 0;
    auto seconds = [&] {
      ++looks;
      if (mesh.rank() == 1) return now += 0.08;               // 2 products in 0.16 s, in every window
      return now += looks >= 9 && looks <= 13 ? 0.03 : 0.04;  // 3 in 0.12 s, but 4 in the third window
    };
    double rate = measure_matrix_rate(mesh, at::kCPU, at::kFloat, seconds), want = product * (2 / 0.16 + 4 / 0.12);
    if (std::abs(rate - want) > 1e-9 * want) throw std::runtime_error(cat("FLOP/s: ", rate, " instead of ", want));
    if (looks != (mesh.rank() == 1 ? 4 * 3 : 3 * 4 + 5)) throw std::runtime_error(cat(looks, " looks"));
  });
}

TEST(MatrixRate, ByTheMachinesClock) {
  run_thread_ranks({2, 1, 1}, [](Mesh& mesh) {
    double rate = measure_matrix_rate(mesh, at::kCPU, at::kFloat);
    if (!(rate > 1e8 && rate < 1e16)) throw std::runtime_error(cat("FLOP/s: ", rate));
  });
}

}  // namespace
}  // namespace plait
