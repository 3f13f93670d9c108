// Ranks that are asked to stop at different moments stop after the same step.
#include "plait/train/stop.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <thread>

#include "plait/comm/launch.h"

namespace plait {
namespace {

constexpr int kRanks = 4;

struct Outcome {
  int64_t step = -1;
  int signal = 0;
};

// Steps of `milliseconds` until the agreement says stop. `asked(rank)`: the step during which the rank gets its signal, and which; 0 = none.
std::array<Outcome, kRanks> run(int milliseconds, const std::function<std::pair<int64_t, int>(int64_t rank)>& asked,
                                int64_t most_steps = 400) {
  std::array<Outcome, kRanks> outcomes;
  run_thread_ranks(MeshLayout{2, 2, 1}, [&](Mesh& mesh) {
    StopRequest request;
    HeedStop heed(&request);
    StopAgreement agreement(&request, mesh, at::kCPU);
    auto [when, signal] = asked(mesh.rank());
    for (int64_t step = 0; step < most_steps; ++step) {
      if (step == when && signal != 0) request.signal = signal;
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      if (int agreed = agreement.after_step(); agreed != 0) {
        outcomes[static_cast<size_t>(mesh.rank())] = {step, agreed};
        return;
      }
    }
  });
  return outcomes;
}

TEST(StopAgreement, SlowStepsStopAtTheirEnd) {
  auto outcomes = run(60, [](int64_t rank) { return std::pair(rank == 2 ? int64_t{3} : int64_t{-1}, rank == 2 ? SIGTERM : 0); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.step, 3);
    EXPECT_EQ(outcome.signal, SIGTERM);
  }
}

TEST(StopAgreement, RanksAskedAtDifferentStepsStopTogether) {
  // Fast steps, of unequal speed of the ranks: not each is asked about, but all ranks ask after the same ones.
  auto outcomes = run(1, [](int64_t rank) { return std::pair(10 + 7 * rank, rank == 0 ? SIGTERM : SIGINT); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.step, outcomes[0].step);
    EXPECT_EQ(outcome.signal, outcomes[0].signal);
    EXPECT_GE(outcome.step, 10);
    EXPECT_LE(outcome.step, 10 + 7 * 3 + 64) << "at most 64 steps later";
  }
}

TEST(StopAgreement, NobodyAskedNobodyStops) {
  for (const Outcome& outcome : run(0, [](int64_t) { return std::pair(int64_t{-1}, 0); })) EXPECT_EQ(outcome.step, -1);
}

TEST(StopAgreement, OneRankAndNoRequest) {
  run_thread_ranks(MeshLayout{1, 1, 1}, [](Mesh& mesh) {
    StopRequest request;
    StopAgreement alone(&request, mesh, at::kCPU), none(nullptr, mesh, at::kCPU);
    EXPECT_EQ(alone.after_step(), 0);
    request.signal = SIGINT;
    EXPECT_EQ(alone.after_step(), SIGINT);
    EXPECT_EQ(alone.now(), SIGINT);
    EXPECT_EQ(none.after_step(), 0);
    EXPECT_EQ(none.now(), 0);
  });
}

TEST(StopAgreement, SignalsAreHeededWithinTheLoopOnly) {
  StopRequest request;
  {
    HeedStop heed(&request);
    EXPECT_TRUE(request.heeded);
  }
  EXPECT_FALSE(request.heeded);
  HeedStop nobody(nullptr);
}

}  // namespace
}  // namespace plait
