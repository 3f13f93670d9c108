#include "plait/elastic/worker_command.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace plait {
namespace {

using Words = std::vector<std::string>;

TEST(WorkerCommand, ARankReadsWhatTheLauncherSaid) {
  RankEnvironment told;
  told.rank = 5, told.local_rank = 1, told.world_size = 8, told.local_world_size = 4, told.node_rank = 1;
  told.launcher = "plait";
  told.master_addr = "fe80::1";
  told.master_port = 29500;
  told.job_id = "job 7";
  told.bind = "0.0.0.0";
  told.rendezvous_timeout = std::chrono::milliseconds(1500);
  told.restart_count = 2;
  told.status_fd = 11;
  told.launcher_fd = 12;
  told.secret = "not for the environment";
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : worker_variables(told)) {
    EXPECT_EQ(value.find("not for"), std::string::npos) << name;
    variables[name] = value;
  }
  auto read = read_launcher_environment([&](const std::string& name) {
    auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  });
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 5);
  EXPECT_EQ(read->local_rank, 1);
  EXPECT_EQ(read->world_size, 8);
  EXPECT_EQ(read->local_world_size, 4);
  EXPECT_EQ(read->node_rank, 1);
  EXPECT_EQ(read->launcher, "plait");
  EXPECT_EQ(read->master_addr, "fe80::1");
  EXPECT_EQ(read->master_port, 29500);
  EXPECT_EQ(read->job_id, "job 7");
  EXPECT_EQ(read->bind, "0.0.0.0");
  EXPECT_EQ(read->rendezvous_timeout, std::chrono::seconds(2)) << "whole seconds, never less";
  EXPECT_EQ(read->restart_count, 2);
  EXPECT_EQ(read->status_fd, 11);
  EXPECT_EQ(read->launcher_fd, 12);
  EXPECT_FALSE(read->listen);
  EXPECT_FALSE(read->foreign_store);
}

class Programs : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait_worker_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = std::getenv("PATH");
    ::setenv("PATH", cat(folder_, ":", path_).c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  std::string file(const std::string& name, mode_t mode) {
    std::string path = cat(folder_, "/", name);
    std::ofstream(path) << "#!/bin/sh\n";
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::string refusal(const Words& words, bool module = false, bool no_python = false) {
    try {
      find_worker_command(words, module, no_python);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "no error";
  }

  std::string folder_, path_;
};

TEST_F(Programs, AreFoundBeforeAnythingStarts) {
  std::string tool = file("tool-of-mine", 0755), text = file("text", 0644), script = file("train.py", 0644);
  EXPECT_EQ(find_worker_command({"tool-of-mine", "-x"}, false, false).path, tool);
  EXPECT_EQ(find_worker_command({tool, "-x"}, false, false).words, (Words{tool, "-x"}));
  EXPECT_EQ(find_worker_command({script, "-x"}, false, false).words, (Words{"python3", "-u", script, "-x"}));
  EXPECT_EQ(find_worker_command({"json.tool", "-x"}, true, false).words, (Words{"python3", "-u", "-m", "json.tool", "-x"}));
  EXPECT_NE(refusal({"no-such-tool"}).find("no-such-tool: no such program in PATH"), std::string::npos);
  EXPECT_NE(refusal({text}).find("is not an executable file"), std::string::npos);
  EXPECT_NE(refusal({folder_}).find("is not an executable file"), std::string::npos);
  EXPECT_NE(refusal({folder_ + "/absent.py"}).find("absent.py: no such file"), std::string::npos);
  EXPECT_NE(refusal({script}, false, true).find("is not an executable file"), std::string::npos);
  EXPECT_NE(refusal({"json"}, true, true).find("exclude each other"), std::string::npos);
}

TEST_F(Programs, PlaitIsThisProgramUnlessPathHasOne) {
  ::setenv("PATH", folder_.c_str(), 1);
  EXPECT_EQ(find_worker_command({"plait", "train"}, false, false).path, std::filesystem::read_symlink("/proc/self/exe").string());
  std::string installed = file("plait", 0755);
  EXPECT_EQ(find_worker_command({"plait", "train"}, false, false).path, installed);
}

}  // namespace
}  // namespace plait
