#include "plait/train/pipeline_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "plait/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class PipelineMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (fs::temp_directory_path() / "plait-memory-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::path full = root_ + path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string root_;
};

TEST_F(PipelineMemory, IsWhatTheMachineAndItsControlGroupsLeave) {
  EXPECT_EQ(available_bytes(root_), 0);
  write("/proc/meminfo", "MemFree: 7 kB\n");
  EXPECT_EQ(available_bytes(root_), 0);
  write("/proc/meminfo", "MemTotal:       24576000 kB\nMemFree:          900000 kB\nMemAvailable:   20480000 kB\nBuffers:  5 kB\n");
  EXPECT_EQ(available_bytes(root_), int64_t{20480000} * 1024);
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.max", "16000000000\n");
  write("/sys/fs/cgroup/job/memory.current", "15000000000\n");
  EXPECT_EQ(available_bytes(root_), 1000000000);
  // A container that has read its model and data: nearly all that it "uses" is their pages.
  write("/sys/fs/cgroup/job/memory.stat", "anon 900000000\nfile 14000000000\ninactive_file 14000000000\n");
  EXPECT_EQ(available_bytes(root_), 15000000000);
  write("/proc/meminfo", "MemAvailable: 2000000 kB\n");
  EXPECT_EQ(available_bytes(root_), int64_t{2000000} * 1024);
}

TEST_F(PipelineMemory, OfThisMachine) { EXPECT_GT(available_bytes(""), 0); }

}  // namespace
}  // namespace plait
