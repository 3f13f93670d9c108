#include "plait/elastic/environment.h"

#include <gtest/gtest.h>

#include <map>

namespace plait {
namespace {

std::optional<RankEnvironment> read(std::map<std::string, std::string> variables) {
  return read_launcher_environment([variables](const std::string& name) -> std::optional<std::string> {
    auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  });
}

std::map<std::string, std::string> torchrun() {
  return {{"RANK", "5"},           {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "n0.x"}, {"MASTER_PORT", "29500"}, {"GROUP_RANK", "1"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

std::string message_without(std::map<std::string, std::string> variables) {
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
}

TEST(Environment, RankZeroListensOnlyWithoutAgentStore) {
  auto variables = torchrun();
  variables["RANK"] = "0";
  EXPECT_FALSE(read(variables)->listen);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_TRUE(read(variables)->listen);
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_TRUE(read(variables)->listen);
  variables["RANK"] = "1";
  EXPECT_FALSE(read(variables)->listen);
}

TEST(Environment, WorldOfOneNeedsNoMaster) {
  auto env = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  ASSERT_TRUE(env);
  EXPECT_FALSE(env->listen);
  EXPECT_EQ(env->local_world_size, 1);
}

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

}  // namespace
}  // namespace plait
