// Which cores a rank gets, and that the kernel was told.
#include "plait/elastic/cpu_placement.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace plait {
namespace {

RankEnvironment rank_of(int64_t local_rank, int64_t ranks, const std::string& launcher = "") {
  RankEnvironment env;
  env.rank = env.local_rank = local_rank;
  env.world_size = env.local_world_size = ranks;
  env.launcher = launcher;
  return env;
}

CpuPlacement place(const RankEnvironment& env, int64_t threads, const std::vector<int>& allowed, int64_t online = 8,
                   const std::string& variable = "", Affinity wish = Affinity::kAuto) {
  return place_rank(wish, env, threads, allowed, online, [&](const std::string& name) { return name == variable; });
}

using Cores = std::vector<int>;

TEST(CpuPlacement, EachRankGetsItsShare) {
  EXPECT_EQ(place(rank_of(0, 2), 1, {0, 1}).cores, Cores({0}));
  EXPECT_EQ(place(rank_of(1, 2), 1, {0, 1}).cores, Cores({1}));
  EXPECT_EQ(place(rank_of(1, 2), 2, {2, 3, 5, 7}).cores, Cores({5, 7}));
  EXPECT_EQ(place(rank_of(3, 4), 1, {4, 5, 6, 7}).cores, Cores({7}));
  EXPECT_EQ(place(rank_of(1, 2), 1, {0, 1}).reason, "2 ranks x 1 thread on 2 cores: each rank stays on its own");
}

TEST(CpuPlacement, FewerOrMoreThreadsThanCoresAreLeftAlone) {
  EXPECT_TRUE(place(rank_of(0, 2), 1, {0, 1, 2}).cores.empty());
  EXPECT_TRUE(place(rank_of(0, 8), 1, {0, 1}).cores.empty());
  EXPECT_TRUE(place(rank_of(0, 1), 2, {0, 1}).cores.empty());
  EXPECT_TRUE(place(rank_of(0, 2), 1, {}).cores.empty());
  EXPECT_EQ(place(rank_of(0, 8), 1, {0, 1}).reason, "8 ranks x 1 thread on 2 cores: not pinned, there are fewer cores than threads");
}

TEST(CpuPlacement, WhatOthersChoseStays) {
  EXPECT_TRUE(place(rank_of(0, 2, "Slurm"), 1, {0, 1}).cores.empty());
  EXPECT_EQ(place(rank_of(0, 2, "OpenMPI"), 1, {3}).reason,
            "2 ranks x 1 thread on 1 core: the cores that OpenMPI chose (3 of 8) stay as they are");
  EXPECT_EQ(place(rank_of(1, 2, "torchrun"), 1, {0, 1}, 2).cores, Cores({1}));  // it chose nothing
  EXPECT_EQ(place(rank_of(1, 2, "plait"), 1, {0, 1}).cores, Cores({1}));        // its ranks share the cores it was given
  EXPECT_TRUE(place(rank_of(0, 2), 1, {0, 1}, 2, "OMP_PROC_BIND").cores.empty());
  EXPECT_TRUE(place(rank_of(0, 2), 1, {0, 1}, 2, "GOMP_CPU_AFFINITY").cores.empty());
  EXPECT_TRUE(place(rank_of(0, 2), 1, {0, 1}, 2, "", Affinity::kNone).cores.empty());
}

TEST(CpuPlacement, CoreLists) {
  EXPECT_EQ(core_list({}), "");
  EXPECT_EQ(core_list({3}), "3");
  EXPECT_EQ(core_list({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

// In a process of its own: as many ranks of one thread as there are cores.
TEST(CpuPlacement, TheKernelIsTold) {
  Cores all = allowed_cores();
  ASSERT_FALSE(all.empty());
  if (all.size() < 2) GTEST_SKIP() << "one core: nothing to choose";
  auto last = static_cast<int64_t>(all.size()) - 1;
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::unsetenv("OMP_PROC_BIND");
    ::unsetenv("OMP_PLACES");
    ::unsetenv("GOMP_CPU_AFFINITY");
    CpuPlacement placement = pin_rank(Affinity::kAuto, rank_of(last, last + 1), 1);
    std::ifstream status("/proc/thread-self/status");
    std::string line, want = "Cpus_allowed_list:\t" + std::to_string(all.back());
    bool found = false;
    while (std::getline(status, line)) found |= line == want;
    ::_exit(placement.cores == Cores({all.back()}) && found && allowed_cores() == placement.cores ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace plait
