#include "plait/train/trainer.h"

#include <ATen/ATen.h>

#include <limits>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/data/micro_batches.h"
#include "plait/tensor/allocator.h"
#include "plait/train/evaluate.h"
#include "plait/train/flops.h"
#include "plait/train/load_model.h"
#include "plait/train/stop.h"

namespace plait {

namespace {

int64_t largest_over_ranks(int64_t value, const Mesh& mesh, at::Device device) {
  at::Tensor t = at::full({1}, value, at::TensorOptions().dtype(at::kLong).device(device));
  mesh.world().all_reduce(t, ReduceOp::kMax)->wait();
  return t.item<int64_t>();
}

Metric first_metric(const EvaluationConfig& config, bool classification) {
  if (!config.metrics.empty()) return config.metrics[0];
  return classification ? Metric::kAccuracy : Metric::kLoss;
}

// Rank 0's value on all ranks: what they decide by it, they decide alike on whatever machines they run.
double value_of_rank_0(double value, const Mesh& mesh, at::Device device) {
  at::Tensor t = at::full({1}, value, at::TensorOptions().dtype(at::kDouble)).to(device);
  mesh.world().broadcast(t, 0)->wait();
  return t.item<double>();
}

}  // namespace

Trainer::Trainer(const RunInputs& inputs, Mesh& mesh, at::Device device, const std::function<void(const std::string&)>& say,
                 const RunControl& control)
    : in_(inputs), config_(inputs.config), mesh_(mesh), device_(device), say_(mesh.rank() == 0 ? say : [](const std::string&) {}),
      control_(control), fault_(read_fault()),
      plan_(plan_steps(inputs.train.size(), inputs.config.train.batch_size, inputs.config.train.max_epochs, inputs.config.train.max_steps)),
      saved_(inputs.config.train, plan_), progress_(inputs.config.train, mesh.rank() == 0) {}

void Trainer::settle() {
  if (settled_) return;
  model_ = load_model(in_, mesh_, device_, /*training=*/true, say_, &config_);
  step_ = std::make_unique<TrainStep>(config_, *model_, mesh_, plan_.num_steps, plan_.steps_per_epoch);
  if (mesh_.layout().pp_size > 1)
    bubble_ = check_schedule(model_->pipeline.training(config_.train.distributed.gradient_accumulation_steps)).bubble;
  trace_.emplace(config_, plan_.num_steps, step_->profiler(), mesh_, [this](const std::string& line) {
    progress_.break_line();
    say_(line);
  });
  if (fault_ && fault_->action == "overflow" && fault_->rank == mesh_.rank())
    step_->set_local_gradient_observer([this, now = int64_t{0}](ParameterStore& store) mutable {
      if (++now == fault_->step) store.flat_gradients().narrow(0, 0, 1).fill_(std::numeric_limits<double>::infinity());
    });
  apply_fault(fault_, mesh_.rank(), "start");
  if (mesh_.rank() == 0) metrics_ = std::make_unique<MetricsLog>(in_.config.train.work_dir + "/metrics.jsonl");
  const std::string& events = in_.config.train.tensorboard.dir;
  if (mesh_.rank() == 0 && !events.empty()) events_ = std::make_unique<EventFile>(events);
  settled_ = true;
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

// Settings that compress nothing of this model are legal, but hardly what was wished for.
void Trainer::report_empty_compression(const CompressionCost& cost) {
  const CommCompressionConfig& c = config_.train.comm.compression;
  const std::string at = "train.comm.compression.";
  auto where = [&](const char* setting) { return config_.where(at + setting); };
  if (c.algorithm == GradientCompression::kNone || cost.gradient_bytes_saved > 0) return;
  const bool low_rank = c.algorithm == GradientCompression::kPowerSGD;
  std::vector<std::string> causes, settings;
  if (c.threshold_bytes > 0) {
    causes.push_back(cat("all messages are below threshold_bytes ", c.threshold_bytes, where("threshold_bytes")));
    settings.push_back("threshold_bytes");
  }
  if (low_rank) {
    causes.push_back(cat("all matrices are too small for rank ", c.rank, where("rank")));
    settings.push_back("rank");
  }
  say_(cat("warning: ", at, "algorithm ", enum_word(c.algorithm), where("algorithm"), " saved no byte in step 1",
           causes.empty() ? "" : cat(": ", join(causes, ", or "), "; lower ", join(settings, " or "))));
}

void Trainer::write_step(int64_t step, const StepResult& r, const std::vector<int64_t>& rows, double flops) {
  if (!metrics_) return;
  double epoch = static_cast<double>(step + 1) / static_cast<double>(plan_.steps_per_epoch);
  const double seconds = r.times.step_seconds;
  const int64_t num_tokens = count_tokens(in_.train, rows);
  double rate = static_cast<double>(num_tokens) / seconds;
  auto samples = static_cast<double>(plan_.samples_before_step(step) + static_cast<int64_t>(rows.size()));
  std::vector<std::pair<std::string, double>> fields = {{"step", static_cast<double>(step + 1)},
                                                        {"epoch", epoch},
                                                        {"loss", r.loss},
                                                        {"grad_norm", r.gradient_norm},
                                                        {"learning_rate", r.learning_rate},
                                                        {"samples", samples},
                                                        {"tokens", static_cast<double>(num_tokens)},
                                                        {"step_seconds", seconds},
                                                        {"tokens_per_second", rate},
                                                        {"compute_seconds", r.times.compute_seconds},
                                                        {"communication_seconds", r.times.communication_seconds},
                                                        {"pipeline_wait_seconds", r.times.pipeline_wait_seconds},
                                                        {"optimizer_seconds", r.times.optimizer_seconds},
                                                        {"data_seconds", r.times.data_seconds},
                                                        {"other_seconds", r.times.other_seconds},
                                                        {"hidden_communication_seconds", r.times.hidden_communication_seconds}};
  if (bubble_) fields.emplace_back("pipeline_bubble_predicted", *bubble_);
  if (peak_flops_ > 0) fields.emplace_back("mfu", flops / seconds / peak_flops_);
  if (r.compression) {
    fields.emplace_back("bytes_sent", r.compression->bytes_sent);
    fields.emplace_back("bytes_saved", r.compression->bytes_saved);
    if (r.compression->error) fields.emplace_back("compression_error", *r.compression->error);
    if (step == 0) report_empty_compression(*r.compression);
  }
  if (step_->loss_scaler().enabled()) {
    fields.emplace_back("loss_scale", r.loss_scale);
    fields.emplace_back("skipped", r.skipped ? 1 : 0);
  }
  metrics_->write(fields);
  if (events_ && ((step + 1) % in_.config.train.tensorboard.interval == 0 || step + 1 == plan_.num_steps))
    events_->write(step + 1, {{"train/loss", r.loss}, {"train/grad_norm", r.gradient_norm}, {"train/learning_rate", r.learning_rate}});
  progress_.update({step + 1, plan_.num_steps, epoch, r.loss, r.learning_rate, rate});
}

void Trainer::train_one_step(int64_t step, EpochOrder& order) {
  control_.enter_step(step + 1);
  apply_fault(fault_, mesh_.rank(), "step", step + 1);
  trace_->before_step(step + 1);
  step_->profiler().begin_step(step + 1);
  std::vector<int64_t> rows;
  StepInput input;
  {
    ProfileScope scope(&step_->profiler(), StepPart::kData, "data");
    rows = rows_of_step(plan_, order, step);
    input = step_input(rows, step);
  }
  StepResult r = step_->run(input);
  r.times = step_->profiler().end_step();
  summary_.train_seconds += r.times.step_seconds;
  summary_.last_loss = r.loss;
  double flops = 0;
  if (peak_flops_ > 0) flops = step_flops(model_->shape, model_->head, in_.train, rows);
  report_.add(r.times, flops);
  write_step(step, r, rows, flops);
  trace_->after_step(step + 1);
}

bool Trainer::evaluation_due(int64_t step) const {
  const EvaluationConfig& e = in_.config.evaluation;
  if (in_.valid.size() == 0 || e.strategy == EvalStrategy::kNo) return false;
  if (step + 1 == plan_.num_steps) return true;  // the weights that are exported are always scored
  if (e.strategy == EvalStrategy::kSteps) return (step + 1) % e.interval == 0;
  return (step + 1) % (plan_.steps_per_epoch * e.interval) == 0;
}

void Trainer::report_evaluation(int64_t step, const EvalResult& result) {
  progress_.break_line();
  if (!metrics_) return;
  std::vector<std::pair<std::string, double>> fields = {{"step", static_cast<double>(step + 1)}}, scalars;
  for (auto& field : result_fields(result)) {
    scalars.emplace_back("eval/" + field.first.substr(std::string("eval_").size()), field.second);
    fields.push_back(std::move(field));
  }
  metrics_->write(fields);
  if (events_) events_->write(step + 1, scalars);
  say_(cat("evaluation after step ", step + 1, ": ", json_line(result_fields(result))));
}

bool Trainer::evaluate_now(int64_t step) {
  control_.enter(RankPhase::kEvaluate);
  const Config& c = in_.config;
  int64_t rows = c.evaluation.per_device_batch_size > 0 ? c.evaluation.per_device_batch_size : c.train.per_device_train_batch_size;
  EvalResult result = evaluate(c, *model_, mesh_, in_.valid, rows);
  summary_.last_evaluation = result;
  report_evaluation(step, result);
  Metric first = first_metric(c.evaluation, result.classification);
  double value = value_of_rank_0(metric_value(result, first), mesh_, device_);
  if (!summary_.best_value || (higher_is_better(first) ? value > *summary_.best_value : value < *summary_.best_value)) {
    summary_.best_value = value;
    summary_.best_folder = c.train.work_dir + "/output_best";
    export_folder(*model_, in_, mesh_, summary_.best_folder);
    summary_.last_written = summary_.best_folder;
  }
  if (!early_stop_) early_stop_.emplace(c.train.early_stop, higher_is_better(first));
  if (!early_stop_->should_stop(value)) return false;
  if (step + 1 < plan_.num_steps)
    say_(cat("early stop after step ", step + 1, " of ", plan_.num_steps, ": ", c.train.early_stop.patience,
             " evaluations in a row without an eval_", metric_name(first), " better than ", early_stop_->best(),
             c.train.early_stop.min_delta > 0 ? cat(" by more than ", c.train.early_stop.min_delta) : "", " (train.early_stop)"));
  return true;
}

void Trainer::save_now(int64_t step) {
  control_.enter(RankPhase::kExport);
  export_folder(*model_, in_, mesh_, saved_.folder(step), saved_.mark(step));
  progress_.break_line();
  summary_.last_written = saved_.folder(step);
  say_(cat("weights after step ", step + 1, ": ", saved_.folder(step)));
  if (mesh_.rank() == 0) saved_.written(step, say_);
}

bool Trainer::stops(int signal, int64_t step) {
  if (signal == 0) return false;
  trace_->finish();
  summary_.stop_signal = signal;
  summary_.num_steps = step + 1;
  progress_.break_line();
  say_(cat(stop_text(summary_.stop_signal, step + 1, plan_.num_steps), "; ",
           summary_.last_written.empty() ? "no weights were written" : cat("the last weights written are in ", summary_.last_written)));
  return true;
}

TrainSummary Trainer::run() {
  settle();
  const TrainConfig& c = in_.config.train;
  EpochOrder order(plan_.num_rows, c.seed, c.shuffle);
  say_(cat("training ", plan_.num_steps, " steps of ", c.batch_size, " rows (", plan_.steps_per_epoch, " an epoch), ", order.describe()));
  if (c.profile.mfu) peak_flops_ = measure_matrix_rate(mesh_, device_, model_->compute_type);
  std::optional<HeedStop> heed(control_.stop);
  StopAgreement stop(control_.stop, mesh_, device_);
  for (int64_t step = 0; step < plan_.num_steps; ++step) {
    train_one_step(step, order);
    summary_.num_steps = step + 1;
    if (stops(stop.after_step(), step)) return summary_;
    bool evaluates = evaluation_due(step), saves = saved_.due(step);
    bool enough = evaluates && evaluate_now(step);
    if (saves) save_now(step);
    if (enough) break;
    if ((evaluates || saves) && stops(stop.now(), step)) return summary_;
  }
  heed.reset();
  trace_->finish();
  control_.enter(RankPhase::kExport);
  apply_fault(fault_, mesh_.rank(), "export");
  summary_.output_folder = c.work_dir + "/output";
  export_folder(*model_, in_, mesh_, summary_.output_folder);
  summary_.step_table = report_.lines(mesh_, device_, peak_flops_, bubble_);
  summary_.peak_bytes = largest_over_ranks(memory_stats().peak_bytes, mesh_, device_);
  return summary_;
}

}  // namespace plait
