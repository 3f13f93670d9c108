#include "plait/elastic/pet_environment.h"

#include <gtest/gtest.h>

#include "tests/elastic/launcher_cases.h"

namespace plait {
namespace {

// A v1 PyTorchJob of an older operator: pod 1 of 4.
Variables pod() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "4"},
          {"MASTER_ADDR", "job-master-0"},
          {"MASTER_PORT", "23456"},
          {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
}

// A newer one, 2 pods of 8 ranks: WORLD_SIZE counts ranks, RANK the pods.
Variables newer_pod() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "16"},
          {"MASTER_ADDR", "job-master-0"},
          {"MASTER_PORT", "23456"},
          {"PET_NNODES", "2"},
          {"PET_NODE_RANK", "1"},
          {"PET_NPROC_PER_NODE", "8"},
          {"PET_MASTER_ADDR", "job-master-0"},
          {"PET_MASTER_PORT", "23456"}};
}

Variables trainer_v2() {
  return {{"PET_NNODES", "2"},
          {"PET_NODE_RANK", "0"},
          {"PET_NPROC_PER_NODE", "4"},
          {"PET_MASTER_ADDR", "job-node-0-0.job"},
          {"PET_MASTER_PORT", "29400"}};
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

std::string message_of(const Variables& v) {
  return message_of([&] { read_launcher_environment(lookup(v)); });
}

TEST(Kubeflow, APodIsOneRank) {
  auto env = read_launcher_environment(lookup(pod()));
  ASSERT_TRUE(env);
  EXPECT_EQ(env->launcher, "Kubeflow");
  EXPECT_TRUE(env->one_rank_a_node);
  EXPECT_EQ(env->rank, 1);
  EXPECT_EQ(env->local_rank, 0);
  EXPECT_EQ(env->local_world_size, 1);
  EXPECT_EQ(env->master_addr, "job-master-0");
  EXPECT_EQ(env->bind, "");
  ASSERT_EQ(env->notices.size(), 1u);
  EXPECT_NE(env->notices[0].find("RANK=1 and WORLD_SIZE=4 without LOCAL_RANK"), std::string::npos);
}

TEST(Kubeflow, TheFirstPodIsToldLocalhostAndListensForItsPeers) {
  auto v = pod();
  v["RANK"] = "0";
  v["MASTER_ADDR"] = "localhost";
  auto env = read_launcher_environment(lookup(v));
  EXPECT_TRUE(env->listen);
  EXPECT_EQ(env->bind, "0.0.0.0");
  EXPECT_EQ(env->notices.size(), 2u);
  v["PLAIT_BIND"] = "10.2.3.4";
  EXPECT_EQ(read_launcher_environment(lookup(v))->bind, "10.2.3.4");
  v.erase("KUBERNETES_SERVICE_HOST");
  EXPECT_NE(message_of(v).find("LOCAL_RANK is not set"), std::string::npos) << message_of(v);
}

TEST(Kubeflow, LoopbackWithoutLocalRankIsAnError) {
  auto v = pod();
  for (const char* address : {"127.0.0.1", "localhost", "::1"}) {
    v["MASTER_ADDR"] = address;
    EXPECT_NE(message_of(v).find("LOCAL_RANK is not set"), std::string::npos) << message_of(v);
  }
}

TEST(Kubeflow, OnePodStartsItsOwnRanks) {
  auto v = pod();
  v["RANK"] = "0";
  v["WORLD_SIZE"] = "1";
  EXPECT_FALSE(read_launcher_environment(lookup(v)));
}

TEST(Kubeflow, MoreRanksThanPodsIsToldTheCommand) {
  auto env = read_launcher_environment(lookup(pod()));
  check_ranks_of_pods(*env, 4);
  check_ranks_of_pods(*env, 1);  // a size left out follows from the world
  std::string message = message_of([&] { check_ranks_of_pods(*env, 32); });
  EXPECT_NE(message.find("plait launch --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT "
                         "--nproc_per_node=8 --secret_file=FILE -- plait train"),
            std::string::npos)
      << message;
  EXPECT_NE(message_of([&] { check_ranks_of_pods(*env, 6); }).find("nearest number that does: 8"), std::string::npos);
  env->one_rank_a_node = false;
  check_ranks_of_pods(*env, 32);
}

TEST(Kubeflow, WorldSizeThatCountsRanksIsNotTakenForPods) {
  std::string message = message_of(newer_pod());
  for (const char* fragment : {"PET_NNODES=2", "RANK=1 is the pod's", "WORLD_SIZE=16", "plait launch --secret_file=FILE -- plait train"})
    EXPECT_NE(message.find(fragment), std::string::npos) << message;
  auto v = newer_pod();
  v["PET_NPROC_PER_NODE"] = "auto";  // then the operator counts pods
  v["WORLD_SIZE"] = "2";
  EXPECT_TRUE(read_launcher_environment(lookup(v))->one_rank_a_node);
  v["PET_NNODES"] = "1:2";
  EXPECT_TRUE(read_launcher_environment(lookup(v))->one_rank_a_node);
  v = newer_pod();
  v["PET_NNODES"] = "1";
  v["RANK"] = "0";
  v["WORLD_SIZE"] = "8";
  EXPECT_NE(message_of(v).find("PET_NPROC_PER_NODE=8"), std::string::npos) << message_of(v);
}

TEST(Kubeflow, TrainerV2NeedsALauncher) {
  EXPECT_NE(message_of(trainer_v2()).find("PET_NNODES=2"), std::string::npos);
  EXPECT_NE(message_of(trainer_v2()).find("plait launch --secret_file=FILE -- plait train"), std::string::npos);
  auto v = trainer_v2();
  v["PET_NNODES"] = "1";
  EXPECT_FALSE(read_launcher_environment(lookup(v))) << "one node starts its own ranks";
  v = torchrun_rank();
  for (const auto& [name, value] : trainer_v2()) v[name] = value;
  EXPECT_EQ(read_launcher_environment(lookup(v))->rank, 5) << "torchrun in the pod has read them";
}

}  // namespace
}  // namespace plait
