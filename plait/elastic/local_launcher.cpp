#include "plait/elastic/local_launcher.h"

#include <unistd.h>

#include <filesystem>

#include "plait/base/log.h"
#include "plait/elastic/launch_attempt.h"

namespace plait {

namespace {

int64_t num_threads() {
  std::error_code none;
  int64_t count = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/task", none); !none && it != std::filesystem::directory_iterator(); ++it)
    ++count;
  return count;
}

}  // namespace

std::string short_host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string text = name;
  return text.substr(0, text.find('.'));
}

int launch_local_ranks(const LaunchOptions& options) {
  PLAIT_CHECK(options.num_ranks >= 1 && options.body, "ranks to launch: ", options.num_ranks);
  PLAIT_CHECK(options.node_rank >= 0 && options.node_rank < options.num_nodes, "node ", options.node_rank, " of ", options.num_nodes);
  PLAIT_CHECK(!options.layout || options.layout->world_size() == options.num_ranks * options.num_nodes, "layout of ",
              options.layout->world_size(), " ranks");
  PLAIT_CHECK(options.max_restarts == 0 || options.num_nodes == 1, "restarts on several nodes");
  PLAIT_CHECK(num_threads() <= 1, "ranks are forked, but this process has ", num_threads(), " threads already");
  for (int64_t restarts = 0;; ++restarts) {
    LaunchAttempt::Outcome outcome = LaunchAttempt(options, restarts).run();
    if (outcome.stop_signal != 0) return 128 + outcome.stop_signal;
    if (outcome.code == 0) return static_cast<int>(ExitCode::kOk);
    if (options.max_restarts == 0) return outcome.code;
    if (restarts == options.max_restarts) return static_cast<int>(ExitCode::kRestarts);
    log_info("restart ", restarts + 1, " of ", options.max_restarts, ": all ", options.num_ranks, " ranks start anew");
  }
}

}  // namespace plait
