// Limits of control groups of both versions, on machines made of files.
#include "plait/base/control_groups.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "plait/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class ControlGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (fs::temp_directory_path() / "plait-groups-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::path full = root_ + path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void expect_memory(int64_t limit, int64_t used) {
    auto group = control_group_memory(root_);
    ASSERT_TRUE(group);
    EXPECT_EQ(group->limit_bytes, limit);
    EXPECT_EQ(group->used_bytes, used);
  }

  std::string root_;
};

TEST_F(ControlGroups, NoneIsNoLimit) {
  EXPECT_FALSE(control_group_cores(root_));
  EXPECT_FALSE(control_group_memory(root_));
  EXPECT_FALSE(control_group_processes(root_));
  EXPECT_EQ(read_system_file(root_ + "/nothing"), "");
}

TEST_F(ControlGroups, CoresOfVersion2) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(control_group_cores(root_));
  write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");  // the quota of a level above holds too
  EXPECT_DOUBLE_EQ(control_group_cores(root_).value_or(0), 0.5);
}

TEST_F(ControlGroups, CoresOfVersion1) {
  write("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/docker/x\n0::/\n");
  write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(control_group_cores(root_));
  write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "25000\n");
  EXPECT_DOUBLE_EQ(control_group_cores(root_).value_or(0), 0.25);
}

// Files that were read stay in memory and are charged to the group; the kernel gives them back at need.
TEST_F(ControlGroups, IdlePagesOfFilesAreFree) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "16000\n");
  write("/sys/fs/cgroup/a/b/memory.current", "15000\n");
  expect_memory(16000, 15000);
  write("/sys/fs/cgroup/a/b/memory.stat", "anon 900\nfile 14000\ninactive_anon 3\ninactive_file 13500\nactive_file 500\n");
  expect_memory(16000, 1500);
  EXPECT_EQ(control_group_memory(root_)->free_bytes(), 14500);
  write("/sys/fs/cgroup/a/memory.max", "9000\n");  // leaves less: it counts
  write("/sys/fs/cgroup/a/memory.current", "8000\n");
  expect_memory(9000, 8000);
  write("/sys/fs/cgroup/a/memory.stat", "inactive_file 8500\n");  // the two files are not read at the same moment
  expect_memory(9000, 0);
  write("/sys/fs/cgroup/a/memory.current", "30000\n");
  EXPECT_EQ(control_group_memory(root_)->free_bytes(), 0) << "over a limit that was lowered";
}

TEST_F(ControlGroups, MemoryOfVersion1) {
  write("/proc/self/cgroup", "5:memory:/m\n");
  write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(control_group_memory(root_));
  write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "16000\n");
  write("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "15000\n");
  write("/sys/fs/cgroup/memory/m/memory.stat", "inactive_file 1\ntotal_cache 14000\ntotal_inactive_file 13500\n");
  expect_memory(16000, 1500);
}

TEST_F(ControlGroups, Processes) {
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/pids.max", "max\n");
  EXPECT_FALSE(control_group_processes(root_));
  write("/sys/fs/cgroup/pids.max", "8\n");
  EXPECT_EQ(control_group_processes(root_).value_or(0), 8);
}

}  // namespace
}  // namespace plait
