// Every moment of a step belongs to one part, whatever is nested in what; events lie inside each other as the scopes did.
#include "plait/tensor/profiler.h"

#include <gtest/gtest.h>

#include <random>

namespace plait {
namespace {

// A clock that stands still unless told.
struct Hands {
  int64_t ns = 1000;
  StepProfiler profiler{[this] { return ns; }};
};

double sum_of_parts(const StepTimes& t) {
  return t.compute_seconds + t.communication_seconds + t.pipeline_wait_seconds + t.optimizer_seconds + t.data_seconds + t.other_seconds;
}

TEST(StepProfiler, InnermostScopeGetsTheTime) {
  Hands clock;
  StepProfiler& p = clock.profiler;
  p.begin_step(1);
  clock.ns += 5;
  {
    ProfileScope data(&p, StepPart::kData, "data");
    clock.ns += 10;
  }
  {
    ProfileScope compute(&p, StepPart::kCompute, "2F0");
    clock.ns += 100;
    {
      ProfileScope communication(&p, StepPart::kCommunication, "all_reduce");
      clock.ns += 30;
    }
    clock.ns += 200;
    ProfileScope wait(&p, StepPart::kPipeline, "recv");
    clock.ns += 7;
  }
  ProfileScope optimizer(&p, StepPart::kOptimizer, "optimizer");
  clock.ns += 40;
  StepTimes t = p.end_step();
  EXPECT_DOUBLE_EQ(t.compute_seconds, 300e-9);
  EXPECT_DOUBLE_EQ(t.communication_seconds, 30e-9);
  EXPECT_DOUBLE_EQ(t.pipeline_wait_seconds, 7e-9);
  EXPECT_DOUBLE_EQ(t.optimizer_seconds, 40e-9);
  EXPECT_DOUBLE_EQ(t.data_seconds, 10e-9);
  EXPECT_DOUBLE_EQ(t.other_seconds, 5e-9);
  EXPECT_DOUBLE_EQ(t.step_seconds, 392e-9);
}

TEST(StepProfiler, PartsAddUpToTheStep) {
  std::mt19937 random(7);
  Hands clock;
  StepProfiler& p = clock.profiler;
  for (int64_t step = 1; step <= 50; ++step) {
    int64_t begin = clock.ns;
    p.begin_step(step);
    std::function<void(int)> work = [&](int depth) {
      for (unsigned i = 0; i < 1 + random() % 3; ++i) {
        clock.ns += random() % 1000;
        ProfileScope scope(&p, static_cast<StepPart>(random() % kNumStepParts), "x");
        if (random() % 4 == 0) p.operation_started();
        clock.ns += random() % 1000;
        if (depth < 4) work(depth + 1);
        if (random() % 4 == 0) p.operation_ended();
      }
    };
    work(0);
    StepTimes t = p.end_step();
    EXPECT_DOUBLE_EQ(t.step_seconds, 1e-9 * static_cast<double>(clock.ns - begin));
    EXPECT_NEAR(sum_of_parts(t), t.step_seconds, 1e-12);
    EXPECT_LE(t.hidden_communication_seconds, t.step_seconds - t.communication_seconds - t.pipeline_wait_seconds + 1e-12);
  }
}

TEST(StepProfiler, HiddenIsWhatRunsBesideOtherWork) {
  Hands clock;
  StepProfiler& p = clock.profiler;
  p.begin_step(1);
  ProfileScope compute(&p, StepPart::kCompute, "0B0");
  clock.ns += 100;  // nothing under way
  p.operation_started();
  clock.ns += 50;
  p.operation_started();  // two at once count once
  clock.ns += 20;
  {
    ProfileScope wait(&p, StepPart::kCommunication, "wait");
    clock.ns += 1000;  // exposed
    p.operation_ended();
  }
  clock.ns += 3;
  p.operation_ended();
  clock.ns += 400;
  StepTimes t = p.end_step();
  EXPECT_DOUBLE_EQ(t.hidden_communication_seconds, 73e-9);
  EXPECT_DOUBLE_EQ(t.communication_seconds, 1000e-9);
  EXPECT_NEAR(sum_of_parts(t), t.step_seconds, 1e-15);
}

TEST(StepProfiler, OutsideAStepNothingIsMeasured) {
  Hands clock;
  StepProfiler& p = clock.profiler;
  p.start_trace(10);
  {
    ProfileScope scope(&p, StepPart::kCommunication, "evaluation");
    clock.ns += 10;
  }
  { ProfileScope none(nullptr, StepPart::kCompute, "nobody looks"); }
  p.begin_step(1);
  EXPECT_DOUBLE_EQ(p.end_step().step_seconds, 0);
  EXPECT_EQ(p.events().size(), 1u);  // the step
}

TEST(StepProfiler, AStepThatFailedDoesNotReachTheNext) {
  Hands clock;
  StepProfiler& p = clock.profiler;
  p.begin_step(1);
  try {
    ProfileScope scope(&p, StepPart::kCompute, "0F0");
    p.operation_started();
    clock.ns += 10;
    throw std::runtime_error("lost");
  } catch (const std::runtime_error&) {}
  clock.ns += 100;
  p.begin_step(2);
  clock.ns += 5;
  StepTimes t = p.end_step();
  EXPECT_DOUBLE_EQ(t.step_seconds, 5e-9);
  EXPECT_DOUBLE_EQ(t.other_seconds, 5e-9);
  EXPECT_DOUBLE_EQ(t.hidden_communication_seconds, 0);
}

TEST(StepProfiler, EventsNestAndAreBounded) {
  Hands clock;
  StepProfiler& p = clock.profiler;
  int described = 0;
  auto step = [&](int64_t index) {
    p.begin_step(index);
    ProfileScope outer(&p, StepPart::kCompute, [&] {
      ++described;
      return named_event("0F0");
    });
    clock.ns += 5;
    ProfileScope inner(&p, StepPart::kCommunication, [&] {
      TraceEvent event = named_event("all_reduce");
      event.bytes = 4096;
      event.group = "tensor";
      return event;
    });
    clock.ns += 6;
  };
  step(1);
  p.end_step();
  EXPECT_EQ(described, 0);  // names are made only for a trace
  p.start_trace(4);
  step(2);
  p.end_step();
  ASSERT_EQ(p.events().size(), 3u);
  const TraceEvent &inner = p.events()[0], &outer = p.events()[1], &whole = p.events()[2];
  EXPECT_EQ(inner.name, "all_reduce");
  EXPECT_EQ(inner.bytes, 4096);
  EXPECT_EQ(inner.group, "tensor");
  EXPECT_EQ(outer.name, "0F0");
  EXPECT_EQ(whole.name, "step 2");
  EXPECT_TRUE(whole.begin_ns <= outer.begin_ns && outer.begin_ns < inner.begin_ns);
  EXPECT_TRUE(inner.end_ns <= outer.end_ns && outer.end_ns <= whole.end_ns);
  EXPECT_EQ(inner.end_ns - inner.begin_ns, 6);
  step(3);
  p.end_step();
  EXPECT_EQ(p.events().size(), 4u);
  EXPECT_EQ(p.num_dropped_events(), 2);
  p.stop_trace();
  step(4);
  p.end_step();
  EXPECT_EQ(p.num_dropped_events(), 2);
}

}  // namespace
}  // namespace plait
