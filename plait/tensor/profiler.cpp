#include "plait/tensor/profiler.h"

#include <chrono>
#include <numeric>

#include "plait/base/error.h"

namespace plait {

const char* part_name(StepPart part) {
  switch (part) {
    case StepPart::kCompute: return "compute";
    case StepPart::kCommunication: return "communication";
    case StepPart::kPipeline: return "pipeline";
    case StepPart::kOptimizer: return "optimizer";
    case StepPart::kData: return "data";
    case StepPart::kOther: return "other";
  }
  return "other";
}

StepProfiler::StepProfiler()
    : StepProfiler([] {
        return static_cast<int64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
      }) {}

void StepProfiler::begin_step(int64_t step) {
  in_step_ = true;
  step_ = step;
  part_ = StepPart::kOther;
  part_ns_.fill(0);
  hidden_ns_ = num_under_way_ = 0;
  step_begin_ns_ = last_ns_ = now_ns();
}

StepTimes StepProfiler::end_step() {
  PLAIT_CHECK(in_step_, "end_step() without begin_step()");
  int64_t end_ns = charge();
  in_step_ = false;
  if (tracing_) {
    TraceEvent event = named_event(cat("step ", step_));
    event.begin_ns = step_begin_ns_;
    event.end_ns = end_ns;
    add_event(std::move(event));
  }
  auto seconds = [&](StepPart part) { return 1e-9 * static_cast<double>(part_ns_[static_cast<size_t>(part)]); };
  StepTimes times;
  times.step_seconds = 1e-9 * static_cast<double>(end_ns - step_begin_ns_);
  times.compute_seconds = seconds(StepPart::kCompute);
  times.communication_seconds = seconds(StepPart::kCommunication);
  times.pipeline_wait_seconds = seconds(StepPart::kPipeline);
  times.optimizer_seconds = seconds(StepPart::kOptimizer);
  times.data_seconds = seconds(StepPart::kData);
  times.other_seconds = seconds(StepPart::kOther);
  times.hidden_communication_seconds = 1e-9 * static_cast<double>(hidden_ns_);
  return times;
}

void StepProfiler::start_trace(int64_t max_events) {
  clear_events();
  max_events_ = max_events;
  tracing_ = true;
}

void StepProfiler::clear_events() {
  events_ = {};
  num_dropped_ = 0;
}

void StepProfiler::add_event(TraceEvent event) {
  if (static_cast<int64_t>(events_.size()) < max_events_) events_.push_back(std::move(event));
  else ++num_dropped_;
}

int64_t StepProfiler::charge() {
  int64_t now = now_ns(), passed = now - last_ns_;
  last_ns_ = now;
  part_ns_[static_cast<size_t>(part_)] += passed;
  if (num_under_way_ > 0 && part_ != StepPart::kCommunication && part_ != StepPart::kPipeline) hidden_ns_ += passed;
  return now;
}

std::pair<StepPart, int64_t> StepProfiler::enter(StepPart part) {
  int64_t now = charge();
  return {std::exchange(part_, part), now};
}

int64_t StepProfiler::leave(StepPart previous) {
  int64_t now = charge();
  part_ = previous;
  return now;
}

ProfileScope::~ProfileScope() {
  if (!profiler_ || !profiler_->in_step()) return;
  int64_t end = profiler_->leave(previous_);
  if (!traced_ || !profiler_->tracing()) return;
  event_.part = part_;
  event_.begin_ns = begin_ns_;
  event_.end_ns = end;
  profiler_->add_event(std::move(event_));
}

}  // namespace plait
