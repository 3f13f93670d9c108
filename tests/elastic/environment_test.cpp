#include "plait/elastic/environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/elastic/launcher_cases.h"

namespace plait {
namespace {

std::optional<RankEnvironment> read(const Variables& variables) { return read_launcher_environment(lookup(variables)); }

Variables torchrun() { return torchrun_rank(); }

std::string message_without(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(Environment, NoneWithoutLauncher) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}, {"LOCAL_WORLD_SIZE", "2"}}));
}

TEST(Environment, ReadsWhatTorchrunSets) {
  auto env = read(torchrun());
  ASSERT_TRUE(env);
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->world_size, 8);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 4);
  EXPECT_EQ(env->master_addr, "n0.x");
  EXPECT_EQ(env->master_port, 29500);
  EXPECT_FALSE(env->listen);
  EXPECT_EQ(env->listen_fd, -1);
  EXPECT_EQ(env->node_rank, 1);
  EXPECT_EQ(env->launcher, "torchrun");
  EXPECT_TRUE(env->foreign_store);
  EXPECT_TRUE(env->notices.empty());
}

TEST(Environment, RankZeroListensOnlyWithoutAgentStore) {
  auto variables = torchrun();
  variables["RANK"] = variables["LOCAL_RANK"] = "0";
  EXPECT_FALSE(read(variables)->listen);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_TRUE(read(variables)->listen);
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_TRUE(read(variables)->listen);
  variables["RANK"] = variables["LOCAL_RANK"] = "1";
  EXPECT_FALSE(read(variables)->listen);
}

TEST(Environment, WorldOfOneNeedsNoMaster) {
  auto env = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  ASSERT_TRUE(env);
  EXPECT_FALSE(env->listen);
  EXPECT_EQ(env->local_world_size, 1);
}

TEST(Environment, WorldOfOneNeedsNoLocalRank) {
  auto env = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(env);
  EXPECT_EQ(env->local_rank, 0);
  EXPECT_EQ(env->local_world_size, 1);
}

TEST(Environment, EmptyVariablesAreNoLauncher) { EXPECT_FALSE(read({{"RANK", ""}, {"LOCAL_RANK", ""}})); }

TEST(Environment, MissingVariableIsNamed) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    auto variables = torchrun();
    variables.erase(name);
    EXPECT_NE(message_without(variables).find(std::string("the environment variable ") + name + " is not set"), std::string::npos) << name;
    variables[name] = "";
    EXPECT_NE(message_without(variables).find(std::string("the environment variable ") + name + " is empty"), std::string::npos) << name;
  }
}

TEST(Environment, MalformedValueIsNamed) {
  const std::pair<const char*, const char*> wrong[] = {{"RANK", "x"},
                                                       {"RANK", "8"},
                                                       {"RANK", "-1"},
                                                       {"RANK", "1 "},
                                                       {"WORLD_SIZE", "0"},
                                                       {"WORLD_SIZE", "8.0"},
                                                       {"WORLD_SIZE", "1e3"},
                                                       {"LOCAL_RANK", "4"},
                                                       {"MASTER_PORT", "0"},
                                                       {"MASTER_PORT", "70000"},
                                                       {"LOCAL_WORLD_SIZE", "9"}};
  for (auto [name, value] : wrong) {
    auto variables = torchrun();
    variables[name] = value;
    EXPECT_NE(message_without(variables).find(std::string("the environment variable ") + name + "=" + value + " is not a whole number"),
              std::string::npos)
        << name << "=" << value << ": " << message_without(variables);
  }
}

TEST(Environment, LocalRankAboveRankIsNamed) {
  auto variables = torchrun();
  variables["RANK"] = "1";
  variables["LOCAL_RANK"] = "3";
  std::string message = message_without(variables);
  EXPECT_NE(message.find("LOCAL_RANK=3 contradicts RANK=1"), std::string::npos) << message;
}

TEST(Environment, TorchrunsRestartAndJob) {
  auto variables = torchrun();
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  variables["TORCHELASTIC_RUN_ID"] = "none";
  auto env = read(variables);
  EXPECT_EQ(env->restart_count, 2);
  EXPECT_EQ(env->job_id, "");
  variables["TORCHELASTIC_RUN_ID"] = "job-7";
  EXPECT_EQ(read(variables)->job_id, "job-7");
}

Variables plait_rank() {
  return {{"RANK", "0"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"},
          {"PLAIT_LAUNCHER", "plait"},
          {"PLAIT_BIND", "10.0.0.1"},
          {"PLAIT_RDZV_TIMEOUT", "10"},
          {"PLAIT_JOB_ID", "abc"},
          {"PLAIT_LISTEN_FD", "7"},
          {"PLAIT_STATUS_FD", "8"},
          {"PLAIT_LAUNCHER_FD", "9"},
          {"PLAIT_RESTART_COUNT", "3"}};
}

TEST(Environment, PlaitsOwnVariables) {
  auto env = read(plait_rank());
  EXPECT_EQ(env->launcher, "plait");
  EXPECT_EQ(env->bind, "10.0.0.1");
  EXPECT_EQ(env->rendezvous_timeout, std::chrono::seconds(10));
  EXPECT_EQ(env->job_id, "abc");
  EXPECT_TRUE(env->listen);
  EXPECT_EQ(env->listen_fd, 7);
  EXPECT_EQ(env->status_fd, 8);
  EXPECT_EQ(env->launcher_fd, 9);
  EXPECT_EQ(env->restart_count, 3);
  auto second = plait_rank();
  second["RANK"] = second["LOCAL_RANK"] = "1";
  EXPECT_EQ(read(second)->listen_fd, -1) << "only rank 0 listens";
}

TEST(Environment, PlaitsOwnVariablesMalformed) {
  const std::pair<const char*, const char*> wrong[] = {
      {"PLAIT_RDZV_TIMEOUT", "0"}, {"PLAIT_RDZV_TIMEOUT", "10s"}, {"PLAIT_RDZV_TIMEOUT", "99999999"}, {"PLAIT_LISTEN_FD", "-1"},
      {"PLAIT_STATUS_FD", "x"},    {"PLAIT_LAUNCHER_FD", "1.5"},  {"PLAIT_RESTART_COUNT", "-2"}};
  for (auto [name, value] : wrong) {
    auto variables = plait_rank();
    variables[name] = value;
    EXPECT_NE(message_without(variables).find(std::string(name) + "=" + value), std::string::npos) << message_without(variables);
  }
}

TEST(Environment, SecretFromDescriptorOrFile) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "abcdef\n", 7), 7);
  ::close(ends[1]);
  auto variables = plait_rank();
  variables["PLAIT_SECRET_FD"] = std::to_string(ends[0]);
  EXPECT_EQ(read(variables)->secret, "abcdef");

  std::string path = (std::filesystem::temp_directory_path() / "plait_secret_XXXXXX").string();
  int fd = ::mkstemp(path.data());  // mode 0600
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "from a file", 11), 11);
  ::close(fd);
  variables["PLAIT_SECRET_FILE"] = path;
  EXPECT_NE(message_without(variables).find("contradicts PLAIT_SECRET_FILE="), std::string::npos);
  variables.erase("PLAIT_SECRET_FD");
  EXPECT_EQ(read(variables)->secret, "from a file");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace plait
