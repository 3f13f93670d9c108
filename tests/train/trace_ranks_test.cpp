// Real steps of all parallelisms: their parts add up, their actions are those of the schedule, clocks of other machines are set right.
#include "plait/train/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "plait/comm/launch.h"
#include "plait/plan/schedule.h"
#include "tests/train/layout_case.h"

namespace plait {
namespace {

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

std::multiset<std::string> actions_of(const std::vector<Action>& actions) {
  std::multiset<std::string> names;
  for (const Action& action : actions) names.insert(to_string(action));
  return names;
}

TEST(Trace, StepsOfAllParallelisms) {
  Config config = testing::parity_config(DType::kFloat32, OptimizerKind::kAdamW, 1.0);
  config.train.distributed.gradient_accumulation_steps = 3;
  auto shape = testing::t0_shape(4);
  auto samples = testing::d0_samples(shape.vocab_size);
  std::mutex mutex;
  int checked = 0;
  testing::Hooks hooks;
  hooks.after_step = [&](Mesh& mesh, ParallelModel&, TrainStep& step, int64_t index, const StepResult& result) {
    const StepTimes& t = result.times;
    double sum =
        t.compute_seconds + t.communication_seconds + t.pipeline_wait_seconds + t.optimizer_seconds + t.data_seconds + t.other_seconds;
    expect(t.step_seconds > 0 && std::abs(sum - t.step_seconds) < 1e-6 * t.step_seconds, "parts of the step");
    expect(t.compute_seconds > 0 && t.communication_seconds > 0 && t.pipeline_wait_seconds > 0 && t.optimizer_seconds > 0, "each part");
    if (index == 0) step.profiler().start_trace(1000);
    if (index != 1) return;
    Schedule schedule = make_schedule(ScheduleKind::k1F1B, 2, 1, 3);
    auto want = actions_of(schedule.actions[static_cast<size_t>(mesh.coordinate().pp)]);
    std::multiset<std::string> found;
    std::set<std::string> groups;
    for (const TraceEvent& event : step.profiler().events()) {
      if (want.contains(event.name)) found.insert(event.name);
      if (event.bytes > 0) groups.insert(event.group);
      expect(event.begin_ns <= event.end_ns, event.name);
    }
    expect(found == want, "actions of pipeline rank");
    expect(groups.size() == 3, "messages of three axes");
    std::lock_guard lock(mutex);
    ++checked;
  };
  testing::run_layout(config, shape, testing::grid(2, 2, 2), samples, 2, hooks);
  EXPECT_EQ(checked, 8);
}

TEST(Trace, EventsAreChromeTrace) {
  TraceEvent whole = named_event("step 3"), forward = named_event("2F0"), sum = named_event("wait all_reduce"),
             under_way = named_event("all_reduce");
  whole.begin_ns = 5'000'000'001, whole.end_ns = 5'000'900'001;
  forward.begin_ns = 5'000'000'001, forward.end_ns = 5'000'500'004, forward.part = StepPart::kCompute;
  sum.begin_ns = 5'000'100'000, sum.end_ns = 5'000'100'007, sum.part = StepPart::kCommunication, sum.bytes = 4096, sum.group = "tensor";
  under_way = sum, under_way.in_flight = true;
  std::string text = detail::events_json({whole, forward, sum, under_way}, 3, {1, -1000, 0}, 4'999'999'001);
  auto events = nlohmann::json::parse("[" + text.substr(1) + "]");
  ASSERT_EQ(events.size(), 5u);
  for (const auto& event : events) {
    EXPECT_EQ(event["pid"], 1);
    EXPECT_EQ(event["tid"], 3);
  }
  EXPECT_EQ(events[0]["ph"], "X");
  EXPECT_DOUBLE_EQ(events[0]["ts"], 0);
  EXPECT_DOUBLE_EQ(events[0]["dur"], 900);
  EXPECT_EQ(events[1]["name"], "2F0");
  EXPECT_EQ(events[1]["cat"], "compute");
  EXPECT_DOUBLE_EQ(events[1]["dur"], 500.003);
  EXPECT_DOUBLE_EQ(events[2]["ts"], 99.999);
  EXPECT_DOUBLE_EQ(events[2]["dur"], 0.007);
  EXPECT_EQ(events[2]["args"]["bytes"], 4096);
  EXPECT_EQ(events[2]["args"]["group"], "tensor");
  EXPECT_EQ(events[3]["ph"], "b");
  EXPECT_EQ(events[4]["ph"], "e");
  EXPECT_EQ(events[3]["id"], events[4]["id"]);
  EXPECT_DOUBLE_EQ(events[4]["ts"], 100.006);
}

TEST(Trace, ClocksOfOtherMachines) {
  run_thread_ranks({4, 1, 1}, [](Mesh& mesh) {
    // Ranks 0 and 1 on one machine; 2 and 3 on another, whose clock is 90 s behind; 3 in a container of its own there.
    const int64_t behind = mesh.rank() >= 2 ? 90'000'000'000 : 0;
    const char* machines[] = {"a\nboot1", "a\nboot1", "b\nboot2", "pod\nboot2"};
    auto now = [behind] {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count() - behind;
    };
    auto clocks = detail::trace_clocks(mesh, machines[mesh.rank()], now);
    const int64_t want_machine[] = {0, 0, 1, 2};
    for (size_t rank = 0; rank < 4; ++rank) {
      expect(clocks[rank].machine_index == want_machine[rank], cat("machine of rank ", rank));
      int64_t want = rank >= 2 ? 90'000'000'000 : 0;
      expect(std::abs(clocks[rank].offset_ns - want) <= clocks[rank].error_ns + 1000, cat("clock of rank ", rank));
      expect((clocks[rank].error_ns > 0) == (rank >= 2), "error of the clock");
    }
    expect(clocks[2].offset_ns == clocks[3].offset_ns, "one clock, one offset");
  });
}

TEST(Trace, ARunThatIsTooShortIsRefused) {
  run_thread_ranks({1, 1, 1}, [](Mesh& mesh) {
    Config config;
    config.train.profile.trace_file = "trace.json";
    config.train.profile.first_step = 9;
    StepProfiler profiler;
    StepTrace enough(config, 9, profiler, mesh, [](const std::string&) {});
    try {
      StepTrace trace(config, 8, profiler, mesh, [](const std::string&) {});
      expect(false, "not refused");
    } catch (const Error& error) {
      expect(error.code() == ExitCode::kUsage && std::string(error.what()).find("nearest valid value 8") != std::string::npos,
             error.what());
    }
  });
}

TEST(Trace, ARunThatEndsBeforeItsFirstStepSaysSo) {
  run_thread_ranks({1, 1, 1}, [](Mesh& mesh) {
    Config config;
    config.train.profile.trace_file = "trace.json";
    config.train.profile.first_step = 5;
    StepProfiler profiler;
    std::vector<std::string> lines;
    auto keep = [&](const std::string& line) { lines.push_back(line); };
    StepTrace trace(config, 9, profiler, mesh, keep);
    for (int64_t step = 1; step <= 3; ++step) {
      trace.before_step(step);
      trace.after_step(step);
    }
    trace.finish();
    trace.finish();
    expect(lines == std::vector<std::string>{"no trace was written: the run ended before step 5 (train.profile.first_step)"}, join(lines));
    config.train.profile.trace_file.clear();
    StepTrace none(config, 9, profiler, mesh, keep);
    none.finish();
    expect(lines.size() == 1, join(lines));
  });
}

}  // namespace
}  // namespace plait
