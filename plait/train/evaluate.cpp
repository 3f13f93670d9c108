#include "plait/train/evaluate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plait/base/error.h"
#include "plait/data/micro_batches.h"
#include "plait/data/sampler.h"
#include "plait/train/train_step.h"

namespace plait {

namespace {

// Micro-batches in flight keep a pipeline full; one is enough without.
int64_t micro_batches_of_pass(const Mesh& mesh) { return mesh.layout().pp_size > 1 ? 2 * mesh.layout().pp_size : 1; }

using RowIds = std::vector<int64_t>;

// Runs all rows through the model in passes; `use` gets this data rank's row ids and what the last stage gave for them.
at::Tensor run_all(const Config& config, ParallelModel& model, const Mesh& mesh, const Dataset& rows, int64_t rows_per_micro_batch,
                   const std::function<void(const RowIds&, const StageOutput&)>& use) {
  int64_t num_micro_batches = micro_batches_of_pass(mesh), dp = mesh.layout().dp_size;
  int64_t pass_rows = rows_per_micro_batch * num_micro_batches * dp;
  Schedule schedule = model.pipeline.forward(num_micro_batches);
  at::Tensor loss = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(model.device));
  for (int64_t begin = 0; begin < rows.size(); begin += pass_rows) {
    RowIds pass(static_cast<size_t>(std::min(pass_rows, rows.size() - begin)));
    std::iota(pass.begin(), pass.end(), begin);
    std::vector<RowIds> ids;
    std::vector<MicroBatch> batches;
    for (int64_t m = 0; m < num_micro_batches; ++m) {
      ids.push_back(rows_of_micro_batch(pass, dp, num_micro_batches, mesh.coordinate().dp, m));
      batches.push_back(to_device(make_micro_batch(rows, ids.back(), config.task), model.device));
    }
    PipelineRun run;
    run.micro_batches = &batches;
    run.training = false;
    if (use) run.on_output = [&](int64_t m, const StageOutput& out) { use(ids[static_cast<size_t>(m)], out); };
    loss.add_(model.executor->run(schedule, run));
  }
  return loss;
}

void count_predictions(const Dataset& rows, const RowIds& ids, const at::Tensor& logits, EvalCounts& counts) {
  at::Tensor predicted = logits.argmax(1).to(at::kCPU);
  const int64_t* p = predicted.const_data_ptr<int64_t>();
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t truth = rows.row(ids[i]).label_class;
    if (truth >= 0) ++counts.confusion[static_cast<size_t>(truth * counts.num_classes + p[i])];
  }
}

}  // namespace

EvalResult evaluate(const Config& config, ParallelModel& model, const Mesh& mesh, const Dataset& rows, int64_t rows_per_micro_batch) {
  EvalCounts counts(model.head.task == Task::kTextClassification ? model.head.num_labels : 0);
  std::function<void(const RowIds&, const StageOutput&)> use;
  if (counts.num_classes > 0) use = [&](const RowIds& ids, const StageOutput& out) { count_predictions(rows, ids, out.logits, counts); };
  at::Tensor loss = run_all(config, model, mesh, rows, rows_per_micro_batch, use);
  counts.loss_sum = loss.item<double>();
  counts.from_numbers(sum_from_last_stage(counts.to_numbers(), model, mesh));
  // Numbers of rows, tokens and targets follow from the data set alone: every rank knows them.
  RowIds all(static_cast<size_t>(rows.size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  counts.num_samples = static_cast<double>(rows.size());
  counts.num_targets = static_cast<double>(count_targets(rows, all, config.task));
  counts.num_tokens = static_cast<double>(count_tokens(rows, all));
  EvalResult result = make_result(counts);
  if (!std::isfinite(result.loss))
    throw_error(ExitCode::kNonFinite, "evaluation loss is ", result.loss, ": the weights are not finite or far too large");
  return result;
}

at::Tensor predict_logits(const Config& config, ParallelModel& model, const Mesh& mesh, const Dataset& rows, int64_t rows_per_micro_batch) {
  PLAIT_CHECK(model.head.task == Task::kTextClassification, "prediction of a language model");
  at::Tensor logits = at::zeros({rows.size(), model.head.num_labels}, at::kFloat);
  run_all(config, model, mesh, rows, rows_per_micro_batch, [&](const RowIds& ids, const StageOutput& out) {
    at::Tensor values = out.logits.to(at::kCPU, at::kFloat);
    for (size_t i = 0; i < ids.size(); ++i) logits[ids[i]].copy_(values[static_cast<int64_t>(i)]);
  });
  // Each row was filled by one data rank's last stage; the others hold zeros.
  logits = logits.to(model.device);
  mesh.pipeline().broadcast(logits, model.pipeline.last_stage_rank())->wait();
  mesh.data().all_reduce(logits)->wait();
  return logits.to(at::kCPU);
}

}  // namespace plait
