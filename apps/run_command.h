// What train, eval and predict share: flags to Config, and one process or many.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plait/comm/mesh.h"
#include "plait/config/load_config.h"
#include "plait/elastic/environment.h"

namespace plait {

// Flags as given. `own`: names that belong to the command itself and are not settings; they are taken out.
struct CommandFlags {
  CommandLine settings;
  std::vector<std::pair<std::string, std::string>> own;
  bool help = false;
  bool print_config = false;

  // Value of an own flag, or "".
  std::string value(const std::string& name) const;
};

// argv[0] is the command. `plait train CONFIG --flag value --flag=value --set a.b=c`. `config_argument`: a bare word is the settings file.
// Error(kUsage) for a flag without value, a second settings file.
CommandFlags read_flags(int argc, char** argv, const std::vector<std::string>& own, bool config_argument);

// One rank of a run, connected: called in every rank process.
using RankBody = std::function<int(Mesh& mesh, const std::function<void(const std::string&)>& say)>;

// The config with the world it will run in: sizes from a launcher's environment, else from the settings. Prints the notices on rank 0.
// One process with several threads is started anew, once, with libgomp told to wait without long spinning.
Config load_command_config(const CommandFlags& flags, const std::optional<RankEnvironment>& launched);

// Runs `body` on every rank of the layout: in this process when there is one rank or a launcher started us, else in forked local ranks.
// Returns the exit code.
int run_ranks(const Config& config, const std::optional<RankEnvironment>& launched, const std::string& log_dir, const RankBody& body);

// auto | cpu | cuda -> the device of this rank. Error(kResource) when cuda is asked for and not possible.
std::string resolve_device(const Config& config);

}  // namespace plait
