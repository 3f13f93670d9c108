// The executor over the real backend whose messages cannot be asked for their end.
#include <ATen/Parallel.h>

#include "tests/comm/process_ranks.h"
#include "tests/pipeline_parallel/small_pipeline.h"

namespace plait {
namespace {

// Sends that each rank keeps at one time, from ranks that are real processes.
std::vector<std::string> most_held(int64_t pp_size, int64_t micro_batches, const std::vector<std::string>& machines) {
  testing::Listener listener;
  auto results = testing::run_processes(
      static_cast<int>(pp_size),
      [&](int rank) {
        at::set_num_threads(1);
        auto options = testing::options_of(rank, pp_size, listener, std::chrono::seconds(60));
        if (!machines.empty()) {
          options.backend = "auto";
          options.machine = machines[static_cast<size_t>(rank)];
        }
        auto mesh = connect_mesh({.pp_size = pp_size}, options);
        testing::NotedGroup pipeline(mesh->pipeline(), /*like_gloo=*/false);
        Schedule schedule = make_schedule(ScheduleKind::k1F1B, pp_size, 1, micro_batches);
        testing::run_rank(*mesh, pipeline, schedule, std::vector<int64_t>(static_cast<size_t>(micro_batches), 4));
        mesh->world().barrier();
        throw std::runtime_error(cat(pipeline.most_held));  // a process's way to say something
      },
      std::chrono::seconds(120));
  std::vector<std::string> held;
  for (const auto& result : results) held.push_back(result.message);
  return held;
}

TEST(ExecutorProcesses, SendsOverGlooAreLetGo) {
  EXPECT_EQ(most_held(2, 24, {}), (std::vector<std::string>{"2", "2"}));
  const auto between_machines = most_held(4, 24, {"a", "a", "b", "b"});
  for (const auto& held : between_machines) {
    EXPECT_GE(std::atoi(held.c_str()), 1) << held;
    EXPECT_LE(std::atoi(held.c_str()), 4) << held;
  }
}

}  // namespace
}  // namespace plait
