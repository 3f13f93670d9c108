// The command line of `plait launch`: torchrun's flags and the program behind them. Text to numbers; starts nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/elastic/launcher_variables.h"
#include "plait/elastic/output_relay.h"

namespace plait {

struct LaunchCommand {
  int64_t nproc_per_node = 1;
  int64_t num_nodes = 1, node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0 = any free one (one node)
  std::string bind, job_id, secret_file;
  std::chrono::milliseconds rendezvous_timeout{600000}, stop_grace{60000};
  int64_t max_restarts = 0;
  std::string log_dir;
  std::vector<std::array<std::optional<Shown>, 2>> shown;  // of each local rank; from --redirects and --tee
  std::vector<std::string> program;                        // its name and its own flags
  bool module = false, no_python = false;
  std::vector<std::string> notices;  // what was asked for and has no effect here, and why
  bool help = false;
};

// What this machine has, for --nproc_per_node cpu, gpu and auto.
struct MachineCounts {
  int64_t cores = 1, devices = 0;
};
MachineCounts count_machine();

// `words`: the command line without "launch". '-' and '_' are the same in names; --a=b is --a b. A flag that is not given is taken from
// PLAIT_BIND, PLAIT_JOB_ID, PLAIT_RDZV_TIMEOUT, PLAIT_STOP_GRACE, else from PET_NAME as torchrun does (PET_NNODES, PET_NODE_RANK, ...). Throws Error(kUsage) that names the flag, its value, the rule; an
// unknown flag with the nearest known one. Error(kResource): gpu without devices.
LaunchCommand read_launch_command(const std::vector<std::string>& words, const Variable& variable, const MachineCounts& machine);

}  // namespace plait
