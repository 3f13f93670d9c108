#include "plait/data_parallel/network_notice.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "plait/comm/launch.h"

namespace plait {
namespace {

Config config_with(GradientCompression algorithm, CommStyle style = CommStyle::kAuto) {
  Config config;
  config.train.comm.compression.algorithm = algorithm;
  config.train.comm.priority.data_parallel = style;
  return config;
}

TEST(NetworkNotice, NamesTheFactor) {
  const std::vector<int64_t> machines = {7, 7, 7, 7, 9, 9, 9, 9};
  EXPECT_EQ(
      network_notice(config_with(GradientCompression::kBFloat16), machines, 4),
      "train.comm.compression.algorithm bf16: up to 4 of the 8 data ranks share a machine, and each sends for itself: between machines 2 "
      "x the bytes of none; nearest alternative powersgd, whose sums cross the network once a machine");
  EXPECT_EQ(
      network_notice(config_with(GradientCompression::kPowerSGD, CommStyle::kP2P), machines, 4),
      "train.comm.priority.data_parallel p2p: up to 4 of the 8 data ranks share a machine, and each sends for itself: between machines 4 "
      "x the bytes of collective; nearest alternative collective, whose sums cross the network once a machine");
  auto factor = [](const std::string& notice) {
    return notice.substr(notice.find("machines ") + 9, notice.find(" x the") - notice.find("machines ") - 9);
  };
  EXPECT_EQ(factor(network_notice(config_with(GradientCompression::kFloat8), machines, 4)), "1");
  EXPECT_EQ(factor(network_notice(config_with(GradientCompression::kFloat16), {1, 2, 1, 2}, 8)), "0.5");
  // 2 + 1 ranks: 4 ordered pairs of shards of a third, there and back, against all numbers there and back.
  EXPECT_EQ(factor(network_notice(config_with(GradientCompression::kNone, CommStyle::kP2P), {5, 6, 5}, 4)), "1.3");
}

TEST(NetworkNotice, NothingToSay) {
  const auto bf16 = config_with(GradientCompression::kBFloat16);
  EXPECT_EQ(network_notice(bf16, {1, 2, 3}, 4), "") << "a machine each";
  EXPECT_EQ(network_notice(bf16, {4, 4, 4}, 4), "") << "one machine";
  for (auto algorithm :
       {GradientCompression::kNone, GradientCompression::kPowerSGD, GradientCompression::kTopK, GradientCompression::kNccl})
    EXPECT_EQ(network_notice(config_with(algorithm, CommStyle::kCollective), {1, 1, 2, 2}, 4), "");
}

// Ranks find out where the others are. A thread may have a host name of its own.
TEST(NetworkNotice, FindsTheMachines) {
  std::mutex mutex;
  std::map<int64_t, std::string> notices;
  std::atomic<bool> may_rename = true;
  run_thread_ranks({.dp_size = 4}, [&](Mesh& mesh) {
    const std::string alone = network_notice(config_with(GradientCompression::kBFloat16), mesh.data(), 4);
    EXPECT_EQ(alone, "") << "one machine";
    const char* name = mesh.rank() < 2 ? "plait-a" : "plait-b";
    if (::unshare(CLONE_NEWUTS) != 0 || ::sethostname(name, 7) != 0) may_rename = false;
    mesh.world().barrier();
    if (!may_rename) return;
    const std::string notice = network_notice(config_with(GradientCompression::kBFloat16), mesh.data(), 4);
    std::lock_guard lock(mutex);
    notices[mesh.rank()] = notice;
  });
  if (!may_rename) GTEST_SKIP() << "only root can give a thread another host name";
  for (const auto& [rank, notice] : notices)
    EXPECT_NE(notice.find("up to 2 of the 4 data ranks share a machine"), std::string::npos) << notice;
  EXPECT_EQ(notices.size(), 4u);
}

}  // namespace
}  // namespace plait
