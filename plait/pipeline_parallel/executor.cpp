#include "plait/pipeline_parallel/executor.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "plait/base/error.h"
#include "plait/plan/schedule_orders.h"

namespace plait {

namespace {

// The other end of a message.
struct FarEnd {
  int64_t rank;
  size_t place;  // in its list
};

FarEnd far_end(const Schedule& schedule, const Action& action) {
  const bool sends = action.kind == ActionKind::kSendForward || action.kind == ActionKind::kSendBackward;
  const Action other = sends ? detail::matching_receive(action) : detail::matching_send(action);
  const int64_t rank = schedule.rank_of_stage(other.stage);
  const auto& list = schedule.actions[static_cast<size_t>(rank)];
  return {rank, static_cast<size_t>(std::find(list.begin(), list.end(), other) - list.begin())};
}

// Messages of one step between two ranks differ in stage, micro-batch or direction.
int message_tag(const Schedule& schedule, int64_t stage, int64_t micro_batch, bool gradient) {
  return static_cast<int>(((stage * schedule.num_micro_batches + micro_batch) << 1) | (gradient ? 1 : 0));
}

StepPart part_of(ActionKind kind) {
  bool computes = kind == ActionKind::kForward || kind == ActionKind::kBackward || kind == ActionKind::kWeight;
  return computes ? StepPart::kCompute : StepPart::kPipeline;
}

at::Tensor take(std::map<std::pair<int64_t, int64_t>, at::Tensor>& from, std::pair<int64_t, int64_t> key, const Action& action) {
  auto it = from.find(key);
  PLAIT_CHECK(it != from.end(), "schedule runs ", to_string(action), " before its input is there");
  at::Tensor tensor = std::move(it->second);
  from.erase(it);
  return tensor;
}

void run_backward(const at::Tensor& root, const at::Tensor& gradient) {
  torch::autograd::edge_list roots = {torch::autograd::impl::gradient_edge(root)};
  torch::autograd::Engine::get_default_engine().execute(roots, {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true, {});
}

}  // namespace

PipelineExecutor::PipelineExecutor(const std::vector<StageModel*>& stages, ProcessGroup& pipeline, const ModelShape& shape,
                                   at::ScalarType compute_type, at::Device device, WeightGradientQueue* weight_gradients)
    : stages_(stages), pipeline_(pipeline), shape_(shape), compute_type_(compute_type), device_(device),
      weight_gradients_(weight_gradients), codec_(BorderCompression::kNone, compute_type, device), borders_(pipeline),
      receive_ahead_(device.is_cpu()) {}

StageModel& PipelineExecutor::stage(int64_t virtual_stage) const {
  auto it = std::find_if(stages_.begin(), stages_.end(), [&](StageModel* s) { return s->spec().stage_index == virtual_stage; });
  PLAIT_CHECK(it != stages_.end(), "virtual stage ", virtual_stage, " on pipeline rank ", pipeline_.rank());
  return **it;
}

at::Tensor PipelineExecutor::run(const Schedule& schedule, const PipelineRun& run) {
  PLAIT_CHECK(schedule.pp_size == pipeline_.size(), "schedule for ", schedule.pp_size, " ranks, pipeline has ", pipeline_.size());
  PLAIT_CHECK(static_cast<int64_t>(run.micro_batches->size()) == schedule.num_micro_batches, "micro-batches and schedule differ");
  const auto& actions = schedule.actions[static_cast<size_t>(pipeline_.rank())];
  at::AutoGradMode grad_mode(run.training);
  loss_ = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(device_));
  auto of_kind = [&](ActionKind kind) { return std::count_if(actions.begin(), actions.end(), [&](auto& a) { return a.kind == kind; }); };
  auto forwards_left = of_kind(ActionKind::kForward);
  if (weight_gradients_) weight_gradients_->set_deferring(of_kind(ActionKind::kWeight) > 0);
  bool announced = false;
  auto announce = [&] {
    if (run.before_last_backward && !announced) run.before_last_backward();
    announced = true;
  };
  next_receive_ = 0;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    post_receives(schedule, actions, i, run);
    bool empty = (*run.micro_batches)[static_cast<size_t>(action.micro_batch)].empty();
    if (action.kind == ActionKind::kForward) --forwards_left;
    if (action.kind == ActionKind::kBackward && forwards_left == 0) announce();
    if (empty) continue;
    ProfileScope scope(run.profiler, part_of(action.kind), [&] { return named_event(to_string(action)); });
    switch (action.kind) {
      case ActionKind::kForward: forward(schedule, action, run); break;
      case ActionKind::kBackward: backward(schedule, action, run); break;
      case ActionKind::kWeight:
        if (weight_gradients_) weight_gradients_->flush({action.stage, action.micro_batch});
        break;
      case ActionKind::kSendForward:
      case ActionKind::kSendBackward: send(schedule, action); break;
      case ActionKind::kRecvForward:
      case ActionKind::kRecvBackward: receive(schedule, action); break;
    }
    release_sent(false);
  }
  if (weight_gradients_) {
    weight_gradients_->flush();
    weight_gradients_->set_deferring(false);
  }
  release_sent(true);
  PLAIT_CHECK(receiving_.empty() && inputs_.empty() && output_gradients_.empty() && to_send_.empty() && pending_.empty(), "schedule ",
              schedule.name, " left tensors behind");
  return loss_;
}

void PipelineExecutor::forward(const Schedule& schedule, const Action& action, const PipelineRun& run) {
  Key key{action.stage, action.micro_batch};
  StageModel& model = stage(action.stage);
  const MicroBatch& batch = (*run.micro_batches)[static_cast<size_t>(action.micro_batch)];
  at::Tensor input;
  if (!model.spec().has_embedding()) {
    input = take(inputs_, key, action);
    if (run.training) input.requires_grad_(true);
  }
  ForwardContext context = make_forward_context(batch, shape_, compute_type_, run.training, run.dropout);
  if (!model.spec().has_head() && !here(schedule, action.stage + 1) && !codec_.compresses())
    context.result = borders_.take({model.border_rows(batch), shape_.hidden_size}, compute_type_);
  StageOutput out = model.forward(input, context);
  if (model.spec().has_head()) {
    if (out.loss_sum.defined()) loss_.add_(out.loss_sum.detach());
    if (run.on_output) run.on_output(action.micro_batch, out);
    if (run.training) pending_[key] = {input, out.loss_sum};
    return;
  }
  if (run.training) pending_[key] = {input, out.hidden};
  if (here(schedule, action.stage + 1)) inputs_[{action.stage + 1, action.micro_batch}] = out.hidden.detach();
  else to_send_[key] = out.hidden.detach();
}

void PipelineExecutor::backward(const Schedule& schedule, const Action& action, const PipelineRun& run) {
  Key key{action.stage, action.micro_batch};
  auto it = pending_.find(key);
  PLAIT_CHECK(it != pending_.end(), "schedule runs ", to_string(action), " before its forward");
  Pending pending = std::move(it->second);
  pending_.erase(it);
  at::Tensor gradient =
      stage(action.stage).spec().has_head() ? at::full_like(pending.root, run.gradient_seed) : take(output_gradients_, key, action);
  if (weight_gradients_) weight_gradients_->set_owner(key);
  run_backward(pending.root, gradient);
  if (!pending.input.defined()) return;
  at::Tensor input_gradient = pending.input.grad();
  PLAIT_CHECK(input_gradient.defined(), "no input gradient after ", to_string(action));
  if (here(schedule, action.stage - 1)) output_gradients_[{action.stage - 1, action.micro_batch}] = input_gradient;
  else to_send_[{-1 - action.stage, action.micro_batch}] = input_gradient.contiguous();
}

void PipelineExecutor::send(const Schedule& schedule, const Action& action) {
  bool gradient = action.kind == ActionKind::kSendBackward;
  Key key{gradient ? -1 - action.stage : action.stage, action.micro_batch};
  at::Tensor tensor = codec_.encode(take(to_send_, key, action).contiguous());
  int64_t to_stage = gradient ? action.stage - 1 : action.stage + 1;
  int tag = message_tag(schedule, std::min(action.stage, to_stage), action.micro_batch, gradient);
  const FarEnd to = far_end(schedule, action);
  sending_.push_back({pipeline_.send(tensor, to.rank, tag), tensor, to.rank, to.place});
}

void PipelineExecutor::post_receives(const Schedule& schedule, const std::vector<Action>& actions, size_t begin, const PipelineRun& run) {
  // Two ahead keep both neighbours' messages moving and cost two border tensors.
  const size_t ahead = receive_ahead_ ? 2 : 1;
  next_receive_ = std::max(next_receive_, begin);
  while (next_receive_ < actions.size() && receiving_.size() < ahead) {
    const Action& action = actions[next_receive_];
    bool gradient = action.kind == ActionKind::kRecvBackward;
    if (!gradient && action.kind != ActionKind::kRecvForward) {
      if (!receive_ahead_) return;
      ++next_receive_;
      continue;
    }
    ++next_receive_;
    const MicroBatch& batch = (*run.micro_batches)[static_cast<size_t>(action.micro_batch)];
    if (batch.empty()) continue;
    int64_t from_stage = gradient ? action.stage + 1 : action.stage - 1;
    const int64_t rows = stage(action.stage).border_rows(batch);
    at::Tensor tensor = codec_.arriving(rows, shape_.hidden_size);
    int tag = message_tag(schedule, std::min(action.stage, from_stage), action.micro_batch, gradient);
    receiving_.push_back({pipeline_.recv(tensor, schedule.rank_of_stage(from_stage), tag), tensor, rows});
  }
}

void PipelineExecutor::receive(const Schedule& schedule, const Action& action) {
  PLAIT_CHECK(!receiving_.empty(), "no receive is posted for ", to_string(action));
  Receiving arrived = std::move(receiving_.front());
  receiving_.pop_front();
  arrived.work->wait();
  const FarEnd from = far_end(schedule, action);
  release_received(from.rank, from.place);
  bool gradient = action.kind == ActionKind::kRecvBackward;
  (gradient ? output_gradients_ : inputs_)[{action.stage, action.micro_batch}] =
      codec_.decode(arrived.tensor, arrived.rows, shape_.hidden_size);
}

void PipelineExecutor::release_sent(bool wait) {
  if (wait)
    for (auto& s : sending_) s.work->wait();
  std::erase_if(sending_, [&](Sending& s) { return wait || s.work->done(); });
}

void PipelineExecutor::release_received(int64_t peer, size_t place) {
  std::erase_if(sending_, [&](Sending& s) {
    if (s.peer != peer || s.place_there > place) return false;
    s.work->wait();  // does not block: it is there
    return true;
  });
}

}  // namespace plait
