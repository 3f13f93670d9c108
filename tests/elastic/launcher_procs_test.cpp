// The launcher as a process of its own with real ranks: what it prints, its exit code, and that nothing is left behind.
#include "plait/elastic/local_launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>

#include "plait/base/log.h"
#include "plait/elastic/rank_watch.h"
#include "plait/elastic/status_page.h"

namespace plait {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string last_line(const std::string& text) {
  auto end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  auto begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

[[noreturn]] void sleep_long() {
  for (;;) ::pause();
}

bool is_running(pid_t pid) {
  std::string stat = read_file(cat("/proc/", pid, "/stat"));
  auto at = stat.rfind(") ");
  return at != std::string::npos && stat[at + 2] != 'Z';
}

// A launcher in a child process whose output goes to files; ended by force after 20 s.
class Launcher : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait_launcher_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    for (pid_t rank : rank_pids()) EXPECT_FALSE(is_running(rank)) << "rank process " << rank << " was left behind";
    std::filesystem::remove_all(folder_);
  }

  // Body of a rank that first leaves its process id, so that the test can look for it.
  std::function<int(const RankEnvironment&)> noted(std::function<int(const RankEnvironment&)> body) {
    return [this, body](const RankEnvironment& env) {
      auto name = folder_ / cat("pid_", env.rank);
      std::ofstream(name.string() + ".part") << ::getpid();
      std::filesystem::rename(name.string() + ".part", name);
      return body(env);
    };
  }
  std::vector<pid_t> rank_pids() {
    std::vector<pid_t> pids;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::string name = entry.path().filename().string();
      if (name.starts_with("pid_") && !name.ends_with(".part")) pids.push_back(std::stoi(read_file(entry.path())));
    }
    return pids;
  }
  void wait_for_ranks(size_t count) {
    for (int i = 0; i < 1000 && rank_pids().size() < count; ++i) std::this_thread::sleep_for(milliseconds(10));
    ASSERT_EQ(rank_pids().size(), count);
  }

  LaunchOptions options(int64_t num_ranks, std::function<int(const RankEnvironment&)> body) {
    LaunchOptions result;
    result.num_ranks = num_ranks;
    result.body = noted(std::move(body));
    return result;
  }

  void start(const LaunchOptions& options) {
    started_ = Clock::now();
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ != 0) return;
    ::alarm(20);
    ::dup2(::open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666), STDOUT_FILENO);
    ::dup2(::open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666), STDERR_FILENO);
    int code = 99;
    try {
      code = launch_local_ranks(options);
    } catch (const Error& error) {
      log_line(LogLevel::kError, error.what());
      code = static_cast<int>(error.code());
    }
    ::_exit(code);
  }
  // Exit code of the launcher, 1000 + signal when one killed it.
  int finish() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    seconds_ = std::chrono::duration<double>(Clock::now() - started_).count();
    out_ = read_file(folder_ / "out");
    err_ = read_file(folder_ / "err");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int run(const LaunchOptions& options) {
    start(options);
    return finish();
  }

  pid_t launcher_pid() const { return pid_; }

  std::filesystem::path folder_;
  std::string out_, err_;
  double seconds_ = 0;

 private:
  pid_t pid_ = -1;
  Clock::time_point started_;
};

TEST_F(Launcher, AllRanksRunAndTheirOutputIsTold) {
  auto launch = options(3, [](const RankEnvironment& env) {
    std::cout << "rank " << env.rank << " local " << env.local_rank << " of " << env.world_size << " here " << env.local_world_size
              << " listen " << env.listen << std::endl;
    log_info("quiet ", env.rank);
    std::cout << "without end";
    return env.master_addr == "127.0.0.1" && env.master_port > 0 ? 0 : 1;
  });
  launch.layout = MeshLayout{1, 1, 3};
  launch.shown = {{}, {}, {Shown::kLines, std::nullopt}};
  EXPECT_EQ(run(launch), 0);
  const std::string host = short_host_name();
  for (const std::string& line :
       {std::string("rank 0 local 0 of 3 here 3 listen 1\n"), cat("[", host, " 2 (0,0,2)] rank 2 local 2 of 3 here 3 listen 0\n"),
        cat("[", host, " 2 (0,0,2)] without end\n")}) {
    EXPECT_NE(out_.find(line), std::string::npos) << line << "in\n" << out_;
  }
  EXPECT_EQ(out_.find("rank 1 local"), std::string::npos) << "rank 0 only, and whose lines are asked for";
  EXPECT_NE(err_.find("quiet 0\n"), std::string::npos);
  EXPECT_EQ(err_.find("quiet 1"), std::string::npos);
}

TEST_F(Launcher, RanksMeetWhereTheSocketIsBound) {
  auto address_of = [&](const std::string& bind) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) std::filesystem::remove(entry.path());
    auto launch = options(2, [](const RankEnvironment& env) {
      if (env.rank == 1) std::cout << env.master_addr << std::endl;
      return 0;
    });
    launch.shown = {{}, {Shown::kLines, std::nullopt}};
    launch.prefix = false;
    launch.bind = bind;
    EXPECT_EQ(run(launch), 0) << err_;
    return out_;
  };
  EXPECT_EQ(address_of(""), "127.0.0.1\n");
  EXPECT_EQ(address_of("127.0.0.2"), "127.0.0.2\n");
  EXPECT_EQ(address_of("[::1]"), "::1\n");
  EXPECT_EQ(address_of("0.0.0.0"), "127.0.0.1\n");
}

TEST_F(Launcher, OneRankNeedsNoSocket) {
  EXPECT_EQ(run(options(1, [](const RankEnvironment& env) { return env.listen || env.listen_fd >= 0 || env.master_port != 0 ? 1 : 0; })),
            0);
}

TEST_F(Launcher, OnlyRankZeroHoldsTheListeningSocketAndOthersReachIt) {
  auto body = [](const RankEnvironment& env) {
    if (env.rank == 0) {
      char letter = 0;
      if (::listen(env.listen_fd, 8) != 0) return 5;
      int peer = ::accept(env.listen_fd, nullptr, nullptr);
      return ::read(peer, &letter, 1) == 1 && letter == 'p' ? 0 : 1;
    }
    if (env.listen_fd != -1) return 2;
    if (env.rank == 2) return 0;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(env.master_port));
    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    int tries = 0;  // refused until rank 0 listens
    while (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      if (errno != ECONNREFUSED || ++tries > 1000) return 3;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return ::write(fd, "p", 1) == 1 ? 0 : 4;
  };
  EXPECT_EQ(run(options(3, body)), 0) << err_;
}

TEST_F(Launcher, FirstFailingRanksCodeIsReturnedAndNamedLast) {
  auto launch = options(4, [](const RankEnvironment& env) {
    if (env.rank != 2) sleep_long();
    for (int i = 0; i < 25; ++i) log_info("before ", i);
    throw_error(ExitCode::kCheckpoint, "model.safetensors is cut short");
    return 0;
  });
  launch.layout = MeshLayout{1, 2, 2};
  EXPECT_EQ(run(launch), 4);
  EXPECT_LT(seconds_, 8);
  EXPECT_EQ(last_line(err_), "error: rank 2 (dp 0, pp 1, tp 0) failed first, with exit code 4: model.safetensors is cut short");
  auto block = err_.find("\nROOT CAUSE\n");
  ASSERT_NE(block, std::string::npos) << err_;
  EXPECT_NE(err_.find(cat("  rank     rank 2 (dp 0, pp 1, tp 0) on ", short_host_name(), ", process "), block), std::string::npos) << err_;
  EXPECT_NE(
      err_.find("    | before 24\n    | error: model.safetensors is cut short\nconsequences: ranks 0, 1, 3: stopped by the launcher\n",
                block),
      std::string::npos)
      << err_;
  EXPECT_EQ(err_.find("before 5\n"), std::string::npos) << err_;
}

TEST_F(Launcher, StatusPageTellsStepPhaseAndCoordinateOfADeadRank) {
  auto body = [](const RankEnvironment& env) {
    StatusPage page = StatusPage::attach(env.status_fd);
    if (!page.status()) return 20;
    if (env.rank == 0) sleep_long();
    page.status()->set_coordinate(1, 2, 3);
    page.status()->enter_step(17);
    page.status()->enter(RankPhase::kEvaluate);
    ::raise(SIGKILL);
    return 21;
  };
  EXPECT_EQ(run(options(2, body)), 6);
  EXPECT_NE(err_.find("  rank     rank 1 (dp 1, pp 2, tp 3) on "), std::string::npos) << err_;
  EXPECT_NE(err_.find("  phase    evaluation, step 17\n"), std::string::npos) << err_;
  EXPECT_EQ(last_line(err_).find("error: rank 1 (dp 1, pp 2, tp 3) failed first, with signal 9"), 0u) << err_;
}

TEST_F(Launcher, ExceptionThatIsNoErrorIsABug) {
  EXPECT_EQ(run(options(2, [](const RankEnvironment& env) -> int { throw std::runtime_error(cat("odd ", env.rank)); })), 1);
  EXPECT_NE(last_line(err_).find("with exit code 1: odd "), std::string::npos) << err_;
}

TEST_F(Launcher, MemoryAndThreadsThatRunOutAreResources) {
  EXPECT_EQ(run(options(2, [](const RankEnvironment&) -> int { throw std::bad_alloc(); })), 8);
  EXPECT_NE(last_line(err_).find("with exit code 8: out of memory"), std::string::npos) << err_;
  EXPECT_EQ(run(options(2,
                        [](const RankEnvironment&) -> int {
                          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
                        })),
            8);
  EXPECT_NE(last_line(err_).find("no thread can be started"), std::string::npos) << err_;
  EXPECT_EQ(run(options(2, [](const RankEnvironment&) -> int { throw std::system_error(std::make_error_code(std::errc::io_error)); })), 1);
}

TEST_F(Launcher, RankThatIgnoresTermIsKilledAfterTheGrace) {
  auto launch = options(3, [](const RankEnvironment& env) {
    if (env.rank == 1) {
      std::this_thread::sleep_for(milliseconds(300));
      return 9;
    }
    ::signal(SIGTERM, SIG_IGN);
    sleep_long();
  });
  launch.grace = milliseconds(500);
  EXPECT_EQ(run(launch), 9);
  EXPECT_GT(seconds_, 0.7);
  EXPECT_LT(seconds_, 5);
}

TEST_F(Launcher, RankDeadByASignalIsSix) {
  EXPECT_EQ(run(options(3,
                        [](const RankEnvironment& env) {
                          if (env.rank == 1) ::raise(SIGKILL);
                          sleep_long();
                          return 0;
                        })),
            6);
  EXPECT_EQ(last_line(err_).find("error: rank 1 failed first, with signal 9 (Killed"), 0u) << err_;
}

TEST_F(Launcher, LostPeerIsNotTheFirstCause) {
  EXPECT_EQ(run(options(3,
                        [](const RankEnvironment& env) {
                          if (env.rank == 0) return 6;
                          if (env.rank == 1) sleep_long();
                          std::this_thread::sleep_for(milliseconds(150));
                          return 9;
                        })),
            9);
  EXPECT_EQ(last_line(err_), "error: rank 2 failed first, with exit code 9");
  EXPECT_EQ(run(options(2,
                        [](const RankEnvironment& env) {
                          if (env.rank == 0) sleep_long();
                          return 6;
                        })),
            6);
  EXPECT_EQ(last_line(err_), "error: rank 1 failed first, with exit code 6");
}

TEST_F(Launcher, SignalsAreForwardedAndTold) {
  for (auto [signal, code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 129}}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) std::filesystem::remove(entry.path());
    start(options(2, [](const RankEnvironment&) {
      sleep_long();
      return 0;
    }));
    pid_t launcher = launcher_pid();
    wait_for_ranks(2);
    ::kill(launcher, signal);
    EXPECT_EQ(finish(), code);
    EXPECT_LT(seconds_, 5);
    EXPECT_NE(last_line(err_).find(cat("ended by signal ", signal)), std::string::npos) << err_;
    for (pid_t rank : rank_pids()) EXPECT_FALSE(is_running(rank));
  }
}

TEST_F(Launcher, RanksThatStopWhenAskedHaveTheirTime) {
  auto launch = options(2, [](const RankEnvironment& env) {
    RankWatch watch(env);
    RunControl control = watch.control();
    control.stop->heeded = true;
    while (control.stop->signal == 0) std::this_thread::sleep_for(milliseconds(5));
    std::this_thread::sleep_for(milliseconds(700));  // longer than `grace`
    std::cout << "stopped for " << control.stop->signal << std::endl;
    return 128 + control.stop->signal;
  });
  launch.grace = milliseconds(300);
  start(launch);
  wait_for_ranks(2);
  std::this_thread::sleep_for(milliseconds(200));
  ::kill(launcher_pid(), SIGTERM);
  EXPECT_EQ(finish(), 143);
  EXPECT_NE(out_.find("stopped for 15\n"), std::string::npos) << out_ << err_;
  EXPECT_EQ(err_.find("ROOT CAUSE"), std::string::npos) << err_;
}

TEST_F(Launcher, ASignalToOneRankThatStopsTheRunIsNoFailure) {
  auto launch = options(2, [](const RankEnvironment& env) {
    std::this_thread::sleep_for(milliseconds(env.rank == 0 ? 100 : 400));
    return 130;
  });
  launch.grace = milliseconds(100);
  EXPECT_EQ(run(launch), 130);
  EXPECT_EQ(last_line(err_), "ranks ended by signal 2 (Interrupt): all 2 ranks are gone");
}

TEST_F(Launcher, ARankThatHeedsSignalsIsEndedAllTheSameWhenAnotherFails) {
  auto launch = options(2, [](const RankEnvironment& env) {
    if (env.rank == 1) {
      std::this_thread::sleep_for(milliseconds(300));
      return 9;
    }
    RankWatch watch(env);
    watch.control().stop->heeded = true;
    sleep_long();
  });
  EXPECT_EQ(run(launch), 9);
  EXPECT_LT(seconds_, 5);
  EXPECT_NE(err_.find("consequences: rank 0: stopped by the launcher\n"), std::string::npos) << err_;
}

TEST_F(Launcher, RestartsThenGivesUp) {
  auto launch = options(2, [](const RankEnvironment& env) {
    if (env.rank == 0) std::cout << "attempt " << env.restart_count << " at " << (env.master_port > 0) << std::endl;
    if (env.rank == 0) sleep_long();
    std::this_thread::sleep_for(milliseconds(200));  // until rank 0 has said its line
    return env.restart_count < 2 ? 4 : 9;
  });
  launch.max_restarts = 2;
  EXPECT_EQ(run(launch), 10);
  EXPECT_EQ(out_, "attempt 0 at 1\nattempt 1 at 1\nattempt 2 at 1\n");
  EXPECT_NE(err_.find("restart 1 of 2: all 2 ranks start anew\n"), std::string::npos) << err_;
  EXPECT_NE(err_.find("error: all 2 restarts are used up\n"), std::string::npos) << err_;
  EXPECT_EQ(last_line(err_), "error: rank 1 failed first, with exit code 9");
  launch = options(2, [](const RankEnvironment& env) { return env.restart_count == 1 ? 0 : 4; });
  launch.max_restarts = 3;
  EXPECT_EQ(run(launch), 0);
}

// How a process with a RankWatch ended, after it got the signals at the given moments (milliseconds).
int end_of_watching_process(bool heeds, bool ignores, const std::vector<std::pair<int, int>>& signals) {
  pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    if (ignores) ::signal(SIGINT, SIG_IGN);
    RankWatch watch(RankEnvironment{});
    StopRequest* stop = watch.control().stop;
    stop->heeded = heeds;
    for (int i = 0; i < 2000; ++i) std::this_thread::sleep_for(milliseconds(1));
    ::_exit(stop->signal);
  }
  int now = 0, status = 0;
  for (auto [moment, signal] : signals) {
    std::this_thread::sleep_for(milliseconds(moment - now));
    now = moment;
    ::kill(pid, signal);
  }
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(RankWatch, FirstSignalIsARequestSecondIsTheEnd) {
  EXPECT_EQ(end_of_watching_process(true, false, {{200, SIGTERM}}), SIGTERM) << "noted";
  EXPECT_EQ(end_of_watching_process(true, false, {{200, SIGINT}, {300, SIGTERM}}), SIGINT) << "those that come together are one request";
  EXPECT_EQ(end_of_watching_process(true, false, {{200, SIGINT}, {1400, SIGINT}}), 1000 + SIGINT);
  EXPECT_EQ(end_of_watching_process(false, false, {{200, SIGTERM}}), 1000 + SIGTERM) << "nobody heeds it: at once";
  EXPECT_EQ(end_of_watching_process(false, true, {{200, SIGINT}}), 0) << "ignored signals stay ignored";
}

TEST_F(Launcher, AGrandchildThatWatchesGoesWithTheLauncher) {
  // What `plait launch -- sh -c 'plait train'` does: the kernel's death signal reaches the direct child only.
  start(options(2, [this](const RankEnvironment& env) {
    pid_t child = ::fork();
    if (child == 0) {
      RankWatch watch(env);
      std::ofstream(folder_ / cat("pid_grandchild_", env.rank)) << ::getpid();
      sleep_long();
    }
    sleep_long();
    return 0;
  }));
  pid_t launcher = launcher_pid();
  wait_for_ranks(4);
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(finish(), 1000 + SIGKILL);
  auto any_left = [&] {
    auto pids = rank_pids();
    return std::any_of(pids.begin(), pids.end(), is_running);
  };
  for (int i = 0; i < 500 && any_left(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(any_left());
}

TEST_F(Launcher, NothingIsLeftWhenTheLauncherItselfIsKilled) {
  start(options(4, [](const RankEnvironment&) {
    ::signal(SIGTERM, SIG_IGN);
    sleep_long();
    return 0;
  }));
  pid_t launcher = launcher_pid();
  wait_for_ranks(4);
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(finish(), 1000 + SIGKILL);
  auto any_left = [&] {
    for (pid_t rank : rank_pids()) {
      if (is_running(rank)) return true;
    }
    return false;
  };
  for (int i = 0; i < 500 && any_left(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(any_left());
}

TEST_F(Launcher, EveryRanksOutputGoesToItsLog) {
  auto launch = options(2, [](const RankEnvironment& env) {
    std::cout << "out " << env.rank << std::endl;
    log_info("err ", env.rank);
    if (env.rank == 0) return 0;
    std::this_thread::sleep_for(milliseconds(300));  // rank 0 must have said its words before it would be asked to end
    return 3;
  });
  launch.log_dir = folder_.string();
  EXPECT_EQ(run(launch), 3);
  EXPECT_NE(read_file(folder_ / "rank_0.log").find("out 0\n"), std::string::npos);
  EXPECT_NE(read_file(folder_ / "rank_1.log").find("err 1\n"), std::string::npos);
  EXPECT_NE(last_line(err_).find("rank_1.log"), std::string::npos) << err_;
}

TEST_F(Launcher, UnwritableLogFolderIsAUsageError) {
  auto launch = options(2, [](const RankEnvironment&) { return 0; });
  launch.log_dir = (folder_ / "absent").string();
  EXPECT_EQ(run(launch), 2);
  EXPECT_NE(err_.find("rank_0.log"), std::string::npos) << err_;
}

TEST_F(Launcher, BusyPortIsNamed) {
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  auto launch = options(2, [](const RankEnvironment&) { return 0; });
  launch.master_port = ntohs(address.sin_port);
  EXPECT_EQ(run(launch), 5);
  EXPECT_NE(err_.find(cat("cannot listen on 127.0.0.1:", launch.master_port)), std::string::npos) << err_;
  ::close(fd);
}

TEST_F(Launcher, ReaderThatLeavesDoesNotEndTheRanks) {
  auto launch = options(2, [this](const RankEnvironment& env) {
    for (int i = 0; i < 2000; ++i) std::cout << "some line of text, number " << i << std::endl;
    std::ofstream(folder_ / cat("done_", env.rank)) << 1;
    return 0;
  });
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::_exit(launch_local_ranks(launch));
  }
  ::close(ends[1]);
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "done_0") && std::filesystem::exists(folder_ / "done_1"));
}

TEST_F(Launcher, OnATerminalRankZeroSeesOne) {
  auto launch = options(2, [](const RankEnvironment&) {
    winsize size{};
    ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    std::cout << "tty " << ::isatty(STDOUT_FILENO) << ::isatty(STDERR_FILENO) << " width " << size.ws_col << std::endl;
    return 0;
  });
  launch.shown = {{}, {Shown::kLines, Shown::kLines}};
  winsize size{};
  size.ws_col = 77;
  size.ws_row = 20;
  int terminal = -1;
  pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::alarm(20);
    ::_exit(launch_local_ranks(launch));
  }
  std::string seen;
  char bytes[4096];
  for (ssize_t n; (n = ::read(terminal, bytes, sizeof bytes)) > 0;) seen.append(bytes, static_cast<size_t>(n));
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::close(terminal);
  EXPECT_EQ(status, 0);
  EXPECT_NE(seen.find("tty 11 width 77\r\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find(cat("[", short_host_name(), " 1] tty 00 width 0\r\n")), std::string::npos) << seen;
}

}  // namespace
}  // namespace plait
