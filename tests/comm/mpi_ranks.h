// MPI between real processes, for each library whose plugin is built: mpirun starts the test program once more, with a disabled test of it as
// what every rank does. Where there is no plugin or no launcher, the tests say so.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "plait/comm/mpi_plugin.h"
#include "plait/comm/plugin_paths.h"
#include "tests/comm/process_ranks.h"

namespace plait::testing {

struct MpiJobResult {
  int exit_code = -1;
  std::string output;
};

inline std::string own_path() {
  std::string path(4096, '\0');
  ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(static_cast<size_t>(std::max<ssize_t>(0, length)));
  return path;
}

inline std::string find_program(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/usr/local/bin/"})
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  return "";
}

// Starts `body` (MpiRank.DISABLED_<body>) on n ranks and waits for the end of the launcher.
inline MpiJobResult run_job(std::vector<std::string> words, int n, const std::string& body) {
  for (const auto& word : {std::string("-n"), cat(n), own_path(), std::string("--gtest_also_run_disabled_tests"),
                           cat("--gtest_filter=MpiRank.DISABLED_", body)})
    words.push_back(word);
  const int port = Listener().port;
  std::string folder = (std::filesystem::temp_directory_path() / "plait_mpi_XXXXXX").string();
  if (!::mkdtemp(folder.data())) throw std::runtime_error("no folder");
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::setenv("PLAIT_TEST_PORT", cat(port).c_str(), 1);
    ::setenv("PLAIT_TEST_FOLDER", folder.c_str(), 1);
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) ::setenv(name, "1", 1);
    ::unsetenv("GTEST_TOTAL_SHARDS");
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::close(ends[0]);
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  MpiJobResult result;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(90);
  bool stopped = false;
  char buffer[8192];
  pollfd readable{ends[0], POLLIN, 0};
  while (true) {
    if (!stopped && std::chrono::steady_clock::now() > limit) {
      ::kill(child, SIGTERM);  // the launcher ends its ranks
      stopped = true;
      result.output += "\nstopped after 90 s\n";
    }
    if (::poll(&readable, 1, 500) <= 0) continue;
    const ssize_t count = ::read(ends[0], buffer, sizeof buffer);
    if (count <= 0) break;
    result.output.append(buffer, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  std::filesystem::remove_all(folder);
  return result;
}

// Parameter: the plugin's file.
class MpiJobTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const bool openmpi = GetParam() == std::string(detail::kOpenMpiPluginFile);
    launcher_ = openmpi ? std::vector<std::string>{find_program("mpirun.openmpi"), "--oversubscribe"}
                        : std::vector<std::string>{find_program("mpiexec.hydra")};
    if (detail::find_plugin(GetParam()).empty() || launcher_[0].empty())
      GTEST_SKIP() << "no " << GetParam() << " or no launcher here: setup/test_launchers.sh installs what they need";
  }
  void expect_well(int n, const std::string& body) {
    auto done = run_job(launcher_, n, body);
    EXPECT_EQ(done.exit_code, 0) << done.output;
    EXPECT_NE(done.output.find("1 test from 1 test suite ran"), std::string::npos) << done.output;
  }
  void expect_failure(int n, const std::string& body, const std::vector<std::string>& fragments) {
    auto done = run_job(launcher_, n, body);
    EXPECT_NE(done.exit_code, 0) << done.output;
    for (const auto& fragment : fragments)
      EXPECT_NE(done.output.find(fragment), std::string::npos) << fragment << " is not in\n" << done.output;
  }
  std::vector<std::string> launcher_;
};

inline int variable_number(const char* first, const char* second) {
  const char* text = std::getenv(first);
  if (!text) text = std::getenv(second);
  return text ? std::atoi(text) : -1;
}

// Of a rank that has said its last words: its process stands until `speakers` ranks have, as mpirun ends the job when one is gone.
inline void stand_until_all_have_spoken(int speakers) {
  const std::filesystem::path folder = std::getenv("PLAIT_TEST_FOLDER");
  std::ofstream(folder / cat(::getpid())).put('x');
  auto spoken = [&] { return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()); };
  for (int i = 0; i < 600 && spoken() < speakers; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // what they said passes through mpirun
}

// What every rank does. machines: by rank, which of them it is told to be on; none: this one.
inline void run_rank(const MeshLayout& layout, const std::function<void(Mesh&)>& body,
                     std::chrono::milliseconds timeout = std::chrono::milliseconds(60000), const std::vector<std::string>& machines = {}) {
  at::set_num_threads(1);
  RendezvousOptions options;
  options.rank = options.local_rank = variable_number("OMPI_COMM_WORLD_RANK", "PMI_RANK");
  options.world_size = variable_number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
  options.master_port = variable_number("PLAIT_TEST_PORT", "");
  options.listen = options.rank == 0;
  options.secret = "secret of a test";
  options.timeout = timeout;
  options.rendezvous_timeout = std::chrono::seconds(60);
  options.backend = "mpi";
  ASSERT_EQ(layout.world_size(), options.world_size) << "these tests are started by mpirun";
  if (!machines.empty()) options.machine = machines.at(static_cast<size_t>(options.rank));
  auto mesh = connect_mesh(layout, options);
  body(*mesh);
}

}  // namespace plait::testing
