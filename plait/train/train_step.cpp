#include "plait/train/train_step.h"

#include <ATen/ATen.h>

#include <cmath>

#include "plait/base/error.h"
#include "plait/optim/gradient_norm.h"

namespace plait {

namespace {

[[noreturn]] void stop_at_overflow(const Config& config, int64_t step) {
  const LossScaleConfig& c = config.train.loss_scale;
  if (c.dynamic)
    throw_error(ExitCode::kNonFinite, "step ", step, ": gradients overflow float16 even at loss scale ", LossScaler::kMinScale,
                "; use dtype bfloat16 or float32, or a lower learning rate");
  throw_error(ExitCode::kNonFinite, "step ", step, ": gradients overflow float16 ", LossScaler::kMaxStaticOverflows,
              " steps in a row at the static loss scale ", c.init_scale, config.where("train.loss_scale.init_scale"),
              "; lower train.loss_scale.init_scale, or let it follow with train.loss_scale.dynamic true");
}

// While it lives the groups' operations are measured.
class MeasuredGroups {
 public:
  MeasuredGroups(const Mesh& mesh, StepProfiler* profiler) : mesh_(mesh) { set(profiler); }
  ~MeasuredGroups() { set(nullptr); }
  MeasuredGroups(const MeasuredGroups&) = delete;
  MeasuredGroups& operator=(const MeasuredGroups&) = delete;

 private:
  void set(StepProfiler* profiler) {
    for (ProcessGroup* group : {&mesh_.world(), &mesh_.data(), &mesh_.tensor()}) group->set_profiler(profiler, StepPart::kCommunication);
    mesh_.pipeline().set_profiler(profiler, StepPart::kPipeline);
  }
  const Mesh& mesh_;
};

}  // namespace

TrainStep::TrainStep(const Config& config, ParallelModel& model, const Mesh& mesh, int64_t total_steps, int64_t steps_per_epoch)
    : config_(config), model_(model), mesh_(mesh), scaler_(config.train.loss_scale, config.train.dtype == DType::kFloat16),
      lr_scheduler_(config.train.lr_scheduler, config.train.optimizer.lr, total_steps, steps_per_epoch) {}

const Schedule& TrainStep::schedule_for(int64_t num_micro_batches) {
  if (schedule_.actions.empty() || schedule_.num_micro_batches != num_micro_batches)
    schedule_ = model_.pipeline.training(num_micro_batches);
  return schedule_;
}

StepResult TrainStep::run(const StepInput& input) {
  const bool own = !profiler_.in_step();
  if (own) profiler_.begin_step(input.step_index + 1);
  StepResult result;
  {
    MeasuredGroups measured(mesh_, &profiler_);
    result = run_measured(input);
  }
  if (own) result.times = profiler_.end_step();
  return result;
}

StepResult TrainStep::run_measured(const StepInput& input) {
  StepResult result;
  result.loss_scale = scaler_.scale();
  compute_gradients(input, &result);
  if (observer_) observer_(model_.store);
  update(input, &result);
  if (scaler_.exhausted()) stop_at_overflow(config_, input.step_index + 1);
  return result;
}

void TrainStep::compute_gradients(const StepInput& input, StepResult* result) {
  {
    ProfileScope scope(&profiler_, StepPart::kOptimizer, "clear gradients");
    model_.store.zero_gradients();
  }
  PipelineRun pipeline;
  pipeline.micro_batches = &input.micro_batches;
  pipeline.dropout = {static_cast<uint64_t>(config_.train.seed), input.step_index, true};
  pipeline.profiler = &profiler_;
  auto targets = static_cast<double>(input.num_targets);
  pipeline.gradient_seed = input.num_targets > 0 ? scaler_.scale() / targets : 0.0;
  // Not armed when this rank's part is looked at first: overlap would have begun to sum it.
  if (!local_observer_) pipeline.before_last_backward = [this] { model_.reducer->begin_last_backward(); };
  model_.reducer->set_gradient_scale(scaler_.scale());
  const BorderCodec before = model_.executor->border_codec();
  double own_loss = 0;
  {
    ProfileScope scope(&profiler_, StepPart::kCompute, "forward and backward");
    own_loss = model_.executor->run(schedule_for(static_cast<int64_t>(input.micro_batches.size())), pipeline).item<double>();
  }
  if (local_observer_) local_observer_(model_.store);

  ProfileScope scope(&profiler_, StepPart::kCommunication, "gradient sums");
  model_.reducer->finish();
  model_.sync->sync();
  double loss_sum = sum_from_last_stage({own_loss}, model_, mesh_)[0];
  result->loss = input.num_targets > 0 ? loss_sum / targets : 0.0;
  const CommCompressionConfig& c = config_.train.comm.compression;
  const BorderCodec& now = model_.executor->border_codec();
  if (c.algorithm != GradientCompression::kNone || c.pipeline != BorderCompression::kNone)
    result->compression = compression_cost(now.bytes_sent() - before.bytes_sent(), now.bytes_saved() - before.bytes_saved());
}

CompressionCost TrainStep::compression_cost(int64_t border_sent, int64_t border_saved) const {
  const ReductionCounts& own = model_.reducer->counts();
  at::Tensor sums = at::empty({5}, at::kDouble);
  double* p = sums.mutable_data_ptr<double>();
  p[0] = own.bytes_sent + static_cast<double>(border_sent);
  p[1] = own.bytes_saved + static_cast<double>(border_saved);
  p[2] = own.residual_squares;
  p[3] = own.value_squares;
  p[4] = own.bytes_saved;
  sums = sums.to(model_.device);
  mesh_.world().all_reduce(sums)->wait();
  sums = sums.cpu();
  p = sums.mutable_data_ptr<double>();
  CompressionCost cost{p[0], p[1], p[4], std::nullopt};
  if (config_.train.comm.compression.algorithm != GradientCompression::kNone) cost.error = p[3] == 0 ? 0.0 : std::sqrt(p[2] / p[3]);
  return cost;
}

void TrainStep::update(const StepInput& input, StepResult* result) {
  ProfileScope scope(&profiler_, StepPart::kOptimizer, "optimizer");
  double norm = global_gradient_norm(model_.store, mesh_, config_.train.norm_type);
  result->gradient_norm = norm / scaler_.scale();
  bool finite = std::isfinite(norm);
  if (!std::isfinite(result->loss) || (!finite && !scaler_.enabled()))
    throw_error(ExitCode::kNonFinite, "step ", input.step_index + 1, ": ", std::isfinite(result->loss) ? "gradient norm is " : "loss is ",
                std::abs(std::isfinite(result->loss) ? result->gradient_norm : result->loss),  // "nan" whatever its sign bit
                "; training stopped before the update. Try a lower train.optimizer.params.lr (now ", config_.train.optimizer.lr,
                config_.where("train.optimizer.params.lr"), ") or look at the rows of this step");
  model_.reducer->settle(finite);
  result->learning_rate = lr_scheduler_.lr(model_.optimizer->num_updates());
  if (finite) {
    double factor = clip_factor(result->gradient_norm, config_.train.clip_grad) / scaler_.scale();
    model_.optimizer->step(result->learning_rate, factor);
  }
  result->skipped = !finite;
  scaler_.update(!finite);
}

std::vector<double> sum_from_last_stage(const std::vector<double>& values, const ParallelModel& model, const Mesh& mesh) {
  auto n = static_cast<int64_t>(values.size());
  at::Tensor sums = at::empty({n}, at::kDouble);
  std::copy(values.begin(), values.end(), sums.mutable_data_ptr<double>());
  sums = sums.to(model.device);
  mesh.pipeline().broadcast(sums, model.pipeline.last_stage_rank())->wait();
  mesh.data().all_reduce(sums)->wait();
  at::Tensor host = sums.cpu();
  const double* p = host.const_data_ptr<double>();
  return {p, p + n};
}

}  // namespace plait
