// StepProfiler: where the wall-clock time of a step goes on one rank and, while a trace is recorded, what was done when.
// Invariant: every moment between begin_step() and end_step() counts for exactly one part, that of the innermost open scope, so the parts
// add up to the step whatever is called inside; moments outside all scopes are `other`.
// One rank's own thread; on a device also the autograd thread while the rank's thread waits for it. No communication. A scope costs two
// readings of the clock. On a device the times are those of the host: a kernel may run later than its scope.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace plait {

enum class StepPart : int { kCompute, kCommunication, kPipeline, kOptimizer, kData, kOther };
inline constexpr size_t kNumStepParts = 6;
const char* part_name(StepPart part);  // "compute", "communication", "pipeline", "optimizer", "data", "other"

struct StepTimes {
  double step_seconds = 0;           // the sum of the next six
  double compute_seconds = 0;        // forward and backward
  double communication_seconds = 0;  // exposed: in operations of the data, tensor and world groups, waiting for their other ranks included
  double pipeline_wait_seconds = 0;  // in operations of the pipeline group: the bubble and the messages
  double optimizer_seconds = 0;      // clearing gradients, norm, clipping, update, without the communication of the norm
  double data_seconds = 0;           // choosing and packing the rows
  double other_seconds = 0;
  // Beside the sum: such operations were under way while this rank did something else. At most this was hidden: when a message is
  // through is only seen when it is waited for.
  double hidden_communication_seconds = 0;
};

struct TraceEvent {
  std::string name;  // "2F0", "all_reduce", "optimizer"
  StepPart part = StepPart::kOther;
  int64_t begin_ns = 0, end_ns = 0;  // of the profiler's clock
  int64_t bytes = -1;                // of a message; -1 = none
  std::string group;                 // "data"; empty = no message
  bool in_flight = false;            // from the start of an operation to the end of its wait; overlaps the others
};

inline TraceEvent named_event(std::string name) {
  TraceEvent event;
  event.name = std::move(name);
  return event;
}

class StepProfiler {
 public:
  using Clock = std::function<int64_t()>;  // nanoseconds

  StepProfiler();  // std::chrono::steady_clock
  explicit StepProfiler(Clock clock) : clock_(std::move(clock)) {}

  void begin_step(int64_t step);  // 1-based
  StepTimes end_step();
  bool in_step() const { return in_step_; }

  // From now on scopes become events; when there are `max_events` the later ones are only counted.
  void start_trace(int64_t max_events);
  void stop_trace() { tracing_ = false; }
  bool tracing() const { return tracing_; }
  const std::vector<TraceEvent>& events() const { return events_; }
  int64_t num_dropped_events() const { return num_dropped_; }
  void clear_events();

  int64_t now_ns() const { return clock_(); }
  void add_event(TraceEvent event);

  // An operation of the data, tensor or world group is under way until operation_ended().
  void operation_started() { charge(), ++num_under_way_; }
  void operation_ended() { charge(), num_under_way_ -= num_under_way_ > 0; }

 private:
  friend class ProfileScope;
  int64_t charge();  // the time since the last call goes to the current part; returns now
  std::pair<StepPart, int64_t> enter(StepPart part);
  int64_t leave(StepPart previous);

  Clock clock_;
  bool in_step_ = false, tracing_ = false;
  int64_t step_ = 0, step_begin_ns_ = 0, last_ns_ = 0, hidden_ns_ = 0, num_under_way_ = 0;
  StepPart part_ = StepPart::kOther;
  std::array<int64_t, kNumStepParts> part_ns_{};
  std::vector<TraceEvent> events_;
  int64_t max_events_ = 0, num_dropped_ = 0;
};

// While it lives the rank's time counts for `part`. Nothing with a null profiler or outside a step.
class ProfileScope {
 public:
  ProfileScope(StepProfiler* profiler, StepPart part, const char* name)
      : ProfileScope(profiler, part, [name] { return named_event(name); }) {}

  // `describe` returns the TraceEvent (times and part are filled in); called only when it is recorded.
  template <class Describe>
  requires std::is_invocable_r_v<TraceEvent, Describe> ProfileScope(StepProfiler* profiler, StepPart part, const Describe& describe)
      : part_(part) {
    if (!profiler || !profiler->in_step()) return;
    profiler_ = profiler;
    std::tie(previous_, begin_ns_) = profiler->enter(part);
    if ((traced_ = profiler->tracing())) event_ = describe();
  }
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  StepProfiler* profiler_ = nullptr;
  StepPart part_, previous_ = StepPart::kOther;
  int64_t begin_ns_ = 0;
  bool traced_ = false;
  TraceEvent event_;
};

}  // namespace plait
