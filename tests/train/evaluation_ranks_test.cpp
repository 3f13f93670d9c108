// Evaluation scores each sample once, whatever the layout and batch sizes, and changes nothing of the training around it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "plait/train/evaluate.h"
#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

// Pre-tokenised rows on disk, as a run would read them.
class Rows {
 public:
  Rows(const Samples& samples, const ModelShape& shape, Task task) {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait-rows-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    folder_ = pattern;
    DataFileConfig file;
    file.file = folder_ + "/rows.jsonl";
    std::ofstream out(file.file);
    for (size_t i = 0; i < samples.ids.size(); ++i) {
      out << "{\"input_ids\":[" << join(samples.ids[i]) << "]";
      if (task == Task::kTextClassification) out << ",\"labels\":" << samples.classes[i];
      out << "}\n";
    }
    out.close();
    LabelMap labels;
    labels.names = {"a", "b", "c"};
    data_ = load_dataset(file, task, {}, nullptr, shape, &labels,
                         {.cache_dir = "", .tokenizer_path = "", .num_threads = 1, .label_use = LabelUse::kKnown, .progress = {}});
    EXPECT_EQ(data_.size(), samples.size());
  }
  ~Rows() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  const Dataset& data() const { return data_; }

 private:
  std::string folder_;
  Dataset data_;
};

Samples first_rows(int64_t n) {
  Samples all = d0_samples(61), s;
  for (int64_t i = 0; i < n; ++i) {
    s.ids.push_back(all.ids[static_cast<size_t>(i % 12)]);
    s.classes.push_back(i % 3);
  }
  return s;
}

Config config_for(Task task) {
  Config config = parity_config(DType::kFloat64, OptimizerKind::kSGD, 0);
  config.task = task;
  return config;
}

// The training loss of the same rows in one process is the reference: token sum over token count.
void check_counts(const ModelShape& shape, Task task, const std::vector<MeshLayout>& layouts) {
  for (const auto& layout : layouts)
    for (int64_t n = 1; n <= 2 * layout.dp_size + 1; ++n) {
      Samples samples = first_rows(n), some = first_rows(12);
      Rows rows(samples, shape, task);
      double loss = run_layout(config_for(task), shape, {1, 1, 1}, samples, 1).losses[0];
      Config config = config_for(task);
      config.train.distributed.virtual_pipeline_size = 1;
      Hooks hooks;
      hooks.prepare = [&](Mesh& mesh, ParallelModel& model) {
        for (int64_t batch = 1; batch <= n + 1; ++batch) {
          EvalResult result = evaluate(config, model, mesh, rows.data(), batch);
          EXPECT_NEAR(result.loss, loss, 1e-12 * loss) << name_of(layout) << " rows " << n << " batch " << batch;
          EXPECT_EQ(result.num_samples, n);
        }
      };
      run_layout(config, shape, layout, some, 1, hooks);
    }
}

TEST(Evaluation, LanguageLossOverAnyNumberOfRows) {
  check_counts(t0_shape(3), Task::kTextGeneration,
               {grid(1, 1, 1), grid(2, 1, 1), grid(4, 1, 1), grid(2, 2, 1), grid(2, 1, 2), grid(1, 1, 3), grid(2, 2, 2)});
}

TEST(Evaluation, ClassificationLossOverAnyNumberOfRows) {
  check_counts(tiny_bert_shape(3), Task::kTextClassification, {grid(1, 1, 1), grid(4, 1, 1), grid(1, 2, 2), grid(2, 1, 3)});
}

TEST(Evaluation, PredictionsAndMetricsInEveryLayout) {
  ModelShape shape = tiny_bert_shape(3);
  Samples samples = first_rows(11);
  Rows rows(samples, shape, Task::kTextClassification);
  std::mutex mutex;
  at::Tensor reference;
  std::optional<EvalResult> wanted;
  for (const auto& layout : {grid(1, 1, 1), grid(2, 1, 1), grid(1, 4, 1), grid(1, 1, 3), grid(2, 2, 2), grid(3, 1, 2)})
    for (int64_t batch : {1, 3, 20}) {
      Config config = config_for(Task::kTextClassification);
      Hooks hooks;
      hooks.prepare = [&](Mesh& mesh, ParallelModel& model) {
        at::Tensor logits = predict_logits(config, model, mesh, rows.data(), batch);
        EvalResult result = evaluate(config, model, mesh, rows.data(), batch);
        // Bit for bit the same on all ranks: the best weights and an early stop are decided by it.
        at::Tensor low = at::full({1}, result.loss, at::kDouble), high = low.clone();
        mesh.world().all_reduce(low, ReduceOp::kMin)->wait();
        mesh.world().all_reduce(high, ReduceOp::kMax)->wait();
        EXPECT_EQ(low.item<double>(), high.item<double>()) << name_of(layout);
        std::lock_guard lock(mutex);
        if (!reference.defined()) {
          reference = logits;
          wanted = result;
          // Accuracy from the logits themselves.
          at::Tensor predicted = logits.argmax(1);
          double right = 0;
          for (int64_t i = 0; i < 11; ++i) right += predicted[i].item<int64_t>() == i % 3;
          EXPECT_DOUBLE_EQ(result.accuracy, right / 11);
        }
        EXPECT_LE((logits - reference).abs().max().item<double>(), 1e-6) << name_of(layout);
        EXPECT_EQ(result.accuracy, wanted->accuracy);
        EXPECT_EQ(result.f1, wanted->f1);
        EXPECT_NEAR(result.loss, wanted->loss, 1e-12);
        EXPECT_EQ(result.num_tokens, wanted->num_tokens);
      };
      run_layout(config, shape, layout, samples, 1, hooks);
    }
}

// With dropout on, so that a generator that evaluation moved would show.
TEST(Evaluation, BetweenStepsLeavesTrainingBitEqual) {
  ModelShape shape = t0_shape(4);
  Rows rows(first_rows(5), shape, Task::kTextGeneration);
  for (const auto& [layout, kind] :
       {std::pair{grid(1, 1, 1), ScheduleKind::k1F1B}, std::pair{grid(2, 1, 2), ScheduleKind::k1F1B},
        std::pair{grid(2, 1, 2), ScheduleKind::kZeroBubbleV}, std::pair{grid(1, 2, 2), ScheduleKind::kAuto},
        std::pair{grid(1, 2, 2), ScheduleKind::kInterleaved1F1B}, std::pair{grid(1, 1, 4), ScheduleKind::kGPipe}}) {
    Config config = parity_config(DType::kFloat32, OptimizerKind::kAdamW, 0.5);
    config.train.dropout = 0.1;
    config.train.distributed.gradient_accumulation_steps = 3;
    config.train.distributed.schedule = kind;
    config.train.distributed.virtual_pipeline_size = kind == ScheduleKind::kInterleaved1F1B ? 2 : 1;
    RunRecord plain = run_layout(config, shape, layout, d0_samples(61), 4);
    std::mutex mutex;
    std::vector<double> seen;
    Hooks hooks;
    hooks.after_step = [&](Mesh& mesh, ParallelModel& model, TrainStep&, int64_t step, const StepResult&) {
      if (step % 2 == 1) return;
      double loss = evaluate(config, model, mesh, rows.data(), step + 1).loss;
      std::lock_guard lock(mutex);
      seen.push_back(loss);
    };
    RunRecord evaluated = run_layout(config, shape, layout, d0_samples(61), 4, hooks);
    expect_bit_equal(evaluated, plain, name_of(layout));
    EXPECT_EQ(seen.size(), static_cast<size_t>(2 * layout.world_size()));
  }
}

}  // namespace
}  // namespace plait::testing
