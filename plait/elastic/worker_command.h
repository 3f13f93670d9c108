// The program that `plait launch` runs as a rank: found before any process is started, executed in the forked child with the variables that
// read_launcher_environment() reads there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plait/elastic/environment.h"

namespace plait {

struct WorkerCommand {
  std::string path;                // of the file to execute
  std::vector<std::string> words;  // argv, the name first
};

// What to execute for the words of a command line, as torchrun does: FILE.py and `module` (-m) with python3, anything else itself unless
// `no_python`. `plait` is this very program when PATH has none. Throws Error(kUsage) when there is no such program.
WorkerCommand find_worker_command(const std::vector<std::string>& words, bool module, bool no_python);

// RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT and the PLAIT_* variables of this rank, but for the
// secret, whose value is never in an environment.
std::vector<std::pair<std::string, std::string>> worker_variables(const RankEnvironment& environment);

// In the child: sets the variables, hands the descriptors on (the secret through one of its own, PLAIT_SECRET_FD) and becomes the program.
// Returns only by an Error(kUsage): the file cannot be executed.
[[noreturn]] void become_worker(const WorkerCommand& command, const RankEnvironment& environment);

}  // namespace plait
