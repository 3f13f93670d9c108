#include "plait/train/trainer.h"

#include <ATen/ATen.h>

#include <chrono>
#include <limits>

#include "plait/base/error.h"
#include "plait/data/micro_batches.h"
#include "plait/tensor/allocator.h"
#include "plait/train/evaluate.h"
#include "plait/train/load_model.h"
#include "plait/train/stop.h"

namespace plait {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

int64_t largest_over_ranks(int64_t value, const Mesh& mesh, at::Device device) {
  at::Tensor t = at::full({1}, value, at::TensorOptions().dtype(at::kLong).device(device));
  mesh.world().all_reduce(t, ReduceOp::kMax)->wait();
  return t.item<int64_t>();
}

}  // namespace

Trainer::Trainer(const RunInputs& inputs, Mesh& mesh, at::Device device, const std::function<void(const std::string&)>& say,
                 const RunControl& control)
    : in_(inputs), mesh_(mesh), device_(device), say_(mesh.rank() == 0 ? say : [](const std::string&) {}), control_(control),
      fault_(read_fault()), model_(load_model(inputs, mesh, device, /*training=*/true, say_)),
      plan_(plan_steps(inputs.train.size(), inputs.config.train.batch_size, inputs.config.train.max_epochs, inputs.config.train.max_steps)),
      step_(std::make_unique<TrainStep>(inputs.config, *model_, mesh, plan_.num_steps)), progress_(inputs.config.train, mesh.rank() == 0) {
  apply_fault(fault_, mesh.rank(), "start");
  if (mesh.rank() == 0) metrics_ = std::make_unique<MetricsLog>(in_.config.train.work_dir + "/metrics.jsonl");
  if (fault_ && fault_->action == "overflow" && fault_->rank == mesh.rank())
    step_->set_local_gradient_observer([this, now = int64_t{0}](ParameterStore& store) mutable {
      if (++now == fault_->step) store.flat_gradients().narrow(0, 0, 1).fill_(std::numeric_limits<double>::infinity());
    });
}

StepInput Trainer::step_input(const std::vector<int64_t>& rows, int64_t step) const {
  StepInput input;
  input.step_index = step;
  input.num_targets = count_targets(in_.train, rows, in_.config.task);
  int64_t count = in_.config.train.distributed.gradient_accumulation_steps;
  for (int64_t m = 0; m < count; ++m) {
    auto ids = rows_of_micro_batch(rows, mesh_.layout().dp_size, count, mesh_.coordinate().dp, m);
    input.micro_batches.push_back(to_device(make_micro_batch(in_.train, ids, in_.config.task), device_));
  }
  return input;
}

void Trainer::write_step(int64_t step, const StepResult& r, int64_t num_rows, int64_t num_tokens, double seconds) {
  if (!metrics_) return;
  double epoch = static_cast<double>(step + 1) / static_cast<double>(plan_.steps_per_epoch);
  double rate = static_cast<double>(num_tokens) / seconds;
  auto samples = static_cast<double>(plan_.samples_before_step(step) + num_rows);
  std::vector<std::pair<std::string, double>> fields = {{"step", static_cast<double>(step + 1)},
                                                        {"epoch", epoch},
                                                        {"loss", r.loss},
                                                        {"grad_norm", r.gradient_norm},
                                                        {"learning_rate", r.learning_rate},
                                                        {"samples", samples},
                                                        {"tokens", static_cast<double>(num_tokens)},
                                                        {"step_seconds", seconds},
                                                        {"tokens_per_second", rate},
                                                        {"communication_seconds", r.times.communication_seconds},
                                                        {"pipeline_wait_seconds", r.times.pipeline_wait_seconds},
                                                        {"optimizer_seconds", r.times.optimizer_seconds}};
  if (step_->loss_scaler().enabled()) {
    fields.emplace_back("loss_scale", r.loss_scale);
    fields.emplace_back("skipped", r.skipped ? 1 : 0);
  }
  metrics_->write(fields);
  progress_.update({step + 1, plan_.num_steps, epoch, r.loss, r.learning_rate, rate});
}

void Trainer::train_one_step(int64_t step, EpochOrder& order) {
  control_.enter_step(step + 1);
  apply_fault(fault_, mesh_.rank(), "step", step + 1);
  auto begin = Clock::now();
  auto rows = rows_of_step(plan_, order, step);
  StepResult r = step_->run(step_input(rows, step));
  double seconds = seconds_since(begin);
  summary_.train_seconds += seconds;
  summary_.last_loss = r.loss;
  write_step(step, r, static_cast<int64_t>(rows.size()), count_tokens(in_.train, rows), seconds);
}

bool Trainer::evaluation_due(int64_t step) const {
  const EvaluationConfig& e = in_.config.evaluation;
  if (in_.valid.size() == 0 || e.strategy == EvalStrategy::kNo) return false;
  if (step + 1 == plan_.num_steps) return true;  // the weights that are exported are always scored
  if (e.strategy == EvalStrategy::kSteps) return (step + 1) % e.interval == 0;
  return (step + 1) % (plan_.steps_per_epoch * e.interval) == 0;
}

void Trainer::evaluate_now(int64_t step) {
  control_.enter(RankPhase::kEvaluate);
  const Config& c = in_.config;
  int64_t rows = c.evaluation.per_device_batch_size > 0 ? c.evaluation.per_device_batch_size : c.train.per_device_train_batch_size;
  EvalResult result = evaluate(c, *model_, mesh_, in_.valid, rows);
  summary_.last_evaluation = result;
  progress_.break_line();
  if (metrics_) {
    std::vector<std::pair<std::string, double>> fields = {{"step", static_cast<double>(step + 1)}};
    for (auto& f : result_fields(result)) fields.push_back(f);
    metrics_->write(fields);
    say_(cat("evaluation after step ", step + 1, ": ", json_line(result_fields(result))));
  }
  Metric first = c.evaluation.metrics.empty() ? (result.classification ? Metric::kAccuracy : Metric::kLoss) : c.evaluation.metrics[0];
  double value = metric_value(result, first);
  bool better = !summary_.best_value || (higher_is_better(first) ? value > *summary_.best_value : value < *summary_.best_value);
  if (!better) return;
  summary_.best_value = value;
  summary_.best_folder = c.train.work_dir + "/output_best";
  export_folder(*model_, in_, mesh_, summary_.best_folder);
}

bool Trainer::stop_now(int64_t step) {
  summary_.stop_signal = agree_on_stop(control_.stop, mesh_, device_);
  if (summary_.stop_signal == 0) return false;
  summary_.num_steps = step + 1;
  progress_.break_line();
  return true;
}

TrainSummary Trainer::run() {
  const TrainConfig& c = in_.config.train;
  EpochOrder order(plan_.num_rows, c.seed, c.shuffle);
  say_(cat("training ", plan_.num_steps, " steps of ", c.batch_size, " rows (", plan_.steps_per_epoch, " an epoch), ", order.describe()));
  std::optional<HeedStop> heed(control_.stop);
  for (int64_t step = 0; step < plan_.num_steps; ++step) {
    train_one_step(step, order);
    if (stop_now(step)) return summary_;
    if (!evaluation_due(step)) continue;
    evaluate_now(step);
    if (stop_now(step)) return summary_;
  }
  heed.reset();
  control_.enter(RankPhase::kExport);
  apply_fault(fault_, mesh_.rank(), "export");
  summary_.num_steps = plan_.num_steps;
  summary_.output_folder = c.work_dir + "/output";
  export_folder(*model_, in_, mesh_, summary_.output_folder);
  summary_.peak_bytes = largest_over_ranks(memory_stats().peak_bytes, mesh_, device_);
  return summary_;
}

}  // namespace plait
