// The machine's checks, on machines made of files, and this machine itself.
#include "plait/elastic/machine_checks.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "plait/base/file_descriptor.h"
#include "plait/base/text.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class MachineChecks : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "plait-machine-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    use_.root = folder;
    use_.work_dir = folder;
  }
  void TearDown() override { fs::remove_all(use_.root); }

  void write(const std::string& path, const std::string& text) {
    fs::path full = use_.root + path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void write_meminfo(int64_t total_mib, int64_t available_mib) {
    write("/proc/meminfo", cat("MemTotal: ", total_mib * 1024, " kB\nMemFree: 1 kB\nMemAvailable:   ", available_mib * 1024, " kB\n"));
  }

  MachineUse use_;
};

TEST_F(MachineChecks, CoresOfACgroup) {
  EXPECT_EQ(check_cores(use_).status, CheckStatus::kOk);
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  MachineCheck check = check_cores(use_);
  EXPECT_EQ(check.status, CheckStatus::kWarning);
  EXPECT_NE(check.found.find("0.5"), std::string::npos) << check.found;
  EXPECT_NE(check.remedy.find("OMP_NUM_THREADS to 1"), std::string::npos) << check.remedy;
}

TEST_F(MachineChecks, MoreRanksThanCores) {
  use_.ranks_per_node = 100000;
  MachineCheck check = check_cores(use_);
  EXPECT_EQ(check.status, CheckStatus::kWarning);
  EXPECT_NE(check.remedy.find("one rank a core"), std::string::npos);
}

TEST_F(MachineChecks, Memory) {
  EXPECT_EQ(check_memory(use_).status, CheckStatus::kNote) << "no /proc/meminfo";
  write_meminfo(64000, 32000);
  EXPECT_EQ(check_memory(use_).status, CheckStatus::kOk);
  use_.ranks_per_node = 100;
  EXPECT_EQ(check_memory(use_).status, CheckStatus::kWarning);
  use_.ranks_per_node = 1;
  write_meminfo(64000, 100);
  EXPECT_EQ(check_memory(use_).status, CheckStatus::kFail);
  // A cgroup that is nearly full stops a run on an empty machine; the tightest level counts.
  write_meminfo(64000, 32000);
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/memory.max", cat(int64_t{2000} << 20));
  write("/sys/fs/cgroup/a/memory.current", cat(int64_t{1900} << 20));
  MachineCheck check = check_memory(use_);
  EXPECT_EQ(check.status, CheckStatus::kFail);
  EXPECT_EQ(check.found.find("100 MiB free of 2.0 GiB"), 0u) << check.found;
  // What files that were read take of it is no reason not to start.
  write("/sys/fs/cgroup/a/memory.stat", cat("inactive_file ", int64_t{1500} << 20, "\n"));
  check = check_memory(use_);
  EXPECT_EQ(check.status, CheckStatus::kOk);
  EXPECT_EQ(check.found.find("1.6 GiB free of 2.0 GiB"), 0u) << check.found;
}

TEST_F(MachineChecks, HugePages) {
  EXPECT_EQ(check_huge_pages(use_).status, CheckStatus::kNote);
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_EQ(check_huge_pages(use_).status, CheckStatus::kOk);
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(check_huge_pages(use_).status, CheckStatus::kWarning);
}

TEST_F(MachineChecks, Gpus) {
  EXPECT_EQ(check_gpus(use_, true).status, CheckStatus::kOk) << "none is fine";
  fs::create_directories(use_.root + "/proc/driver/nvidia/gpus/0000:01:00.0");
  write("/proc/driver/nvidia/version", "NVRM version: 570.1\nGCC\n");
  EXPECT_EQ(check_gpus(use_, true).status, CheckStatus::kWarning) << "the device is not in the container";
  write("/dev/nvidiactl", "");
  EXPECT_EQ(check_gpus(use_, true).status, CheckStatus::kOk);
  EXPECT_NE(check_gpus(use_, true).found.find("1 NVIDIA GPUs, driver NVRM version: 570.1"), std::string::npos);
  EXPECT_EQ(check_gpus(use_, false).status, CheckStatus::kWarning) << "no plugin";
  use_.ranks_per_node = 2;
  EXPECT_EQ(check_gpus(use_, true).status, CheckStatus::kFail) << "two ranks, one GPU";
}

TEST_F(MachineChecks, SharedMemory) {
  EXPECT_EQ(check_shared_memory(use_).status, CheckStatus::kWarning) << "no /dev/shm";
  fs::create_directories(use_.root + "/dev/shm");
  EXPECT_NE(check_shared_memory(use_).found.find("free"), std::string::npos);
}

TEST_F(MachineChecks, PortInUseIsAFailureOnlyWhenItWasChosen) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  use_.master_port = ntohs(address.sin_port);
  MachineCheck check = check_ports(use_);
  EXPECT_EQ(check.status, CheckStatus::kFail);
  EXPECT_NE(check.found.find(cat("--master_port ", use_.master_port)), std::string::npos) << check.found;
  EXPECT_NE(check.remedy.find("another program has it"), std::string::npos);
  socket.reset();
  EXPECT_EQ(check_ports(use_).status, CheckStatus::kOk);
}

TEST_F(MachineChecks, WorkDir) {
  MachineCheck check = check_work_dir(use_);
  EXPECT_LE(check.status, CheckStatus::kWarning) << check.found;
  EXPECT_NE(check.found.find(" is writable"), std::string::npos);
  use_.work_dir = use_.root + "/not/there/yet";
  EXPECT_NE(check_work_dir(use_).found.find(use_.root + " is writable"), std::string::npos) << "the nearest folder that is there counts";
  write("/file", "x");
  use_.work_dir = use_.root + "/file";
  EXPECT_EQ(check_work_dir(use_).status, CheckStatus::kFail);
  use_.work_dir = "/proc";
  EXPECT_EQ(check_work_dir(use_).status, CheckStatus::kFail) << "cannot be written";
  EXPECT_TRUE(fs::is_empty(use_.root) || !fs::exists(use_.root + "/.plait-doctor")) << "nothing is left behind";
}

TEST_F(MachineChecks, FileSystems) {
  bool shared = false;
  EXPECT_EQ(detail::file_system_name(0x6969, &shared), "nfs");
  EXPECT_TRUE(shared);
  EXPECT_EQ(detail::file_system_name(0xEF53, &shared), "ext4");
  EXPECT_FALSE(shared);
  EXPECT_EQ(detail::file_system_name(0x12345, &shared), "type 0x12345");
}

TEST_F(MachineChecks, Descriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 200;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(check_descriptors(use_).status, CheckStatus::kWarning);
  use_.num_nodes = 4;
  use_.ranks_per_node = 8;
  EXPECT_EQ(check_descriptors(use_).status, CheckStatus::kFail);
  ::setrlimit(RLIMIT_NOFILE, &before);
  use_.num_nodes = use_.ranks_per_node = 1;
  EXPECT_EQ(check_descriptors(use_).status == CheckStatus::kOk, before.rlim_cur >= 1024);
}

TEST_F(MachineChecks, ProcessesOfACgroup) {
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/pids.max", "8\n");
  MachineCheck check = check_processes(use_);
  EXPECT_EQ(check.status, CheckStatus::kFail);
  EXPECT_NE(check.found.find("at most 8"), std::string::npos) << check.found;
}

TEST_F(MachineChecks, EveryCheckOfThisMachineSaysSomething) {
  use_.root.clear();
  use_.num_nodes = 2;
  auto checks = check_machine(use_);
  EXPECT_EQ(checks.size(), 12u);
  for (const auto& check : checks) {
    EXPECT_FALSE(check.name.empty());
    EXPECT_FALSE(check.found.empty()) << check.name;
    if (check.status >= CheckStatus::kWarning) EXPECT_FALSE(check.remedy.empty()) << check.name << ": " << check.found;
    EXPECT_EQ(check.found.find('\n'), std::string::npos) << check.name;
  }
  EXPECT_EQ(worst({}), CheckStatus::kOk);
  EXPECT_EQ(worst({{"a", CheckStatus::kWarning, "", ""}, {"b", CheckStatus::kNote, "", ""}}), CheckStatus::kWarning);
}

TEST(Launcher, IsNamed) {
  EXPECT_EQ(check_launcher(std::nullopt, "").status, CheckStatus::kOk);
  EXPECT_EQ(check_launcher(std::nullopt, "RANK=3").status, CheckStatus::kFail);
  RankEnvironment env;
  env.rank = 1;
  env.world_size = 2;
  env.launcher = "Slurm";
  env.master_port = 29500;
  EXPECT_EQ(check_launcher(env, "").found, "Slurm: rank 1 of 2, local rank 0 of 1, meets at 127.0.0.1:29500");
}

TEST(BytesText, Units) {
  EXPECT_EQ(bytes_text(900), "900 bytes");
  EXPECT_EQ(bytes_text(4096), "4 KiB");
  EXPECT_EQ(bytes_text(int64_t{512} << 20), "512 MiB");
  EXPECT_EQ(bytes_text((int64_t{25} << 30) / 2), "12.5 GiB");
}

}  // namespace
}  // namespace plait
