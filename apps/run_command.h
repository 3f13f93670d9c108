// What train, eval and predict share: flags to Config, and one process or many.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plait/base/run_control.h"
#include "plait/comm/mesh.h"
#include "plait/config/load_config.h"
#include "plait/elastic/cpu_placement.h"
#include "plait/elastic/environment.h"
#include "plait/elastic/rank_watch.h"
#include "plait/train/run_inputs.h"

namespace plait {

// Flags as given. `own`: names that belong to the command itself and are not settings; they are taken out. --bind, --job_id,
// --rdzv_timeout and --stop_grace are own flags of every command.
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

// How this process was started; read once, at the beginning of a command.
struct RunPlace {
  std::optional<RankEnvironment> launched;  // as one rank, by somebody else; none: run_ranks starts the ranks
  RankEnvironment wishes;                   // bind, job_id, secret, rendezvous_timeout of ranks that run_ranks starts
  std::chrono::milliseconds stop_grace{60000};
  bool tells_placement = false;      // rank 0 says when ranks are pinned to cores: long runs
  std::unique_ptr<RankWatch> watch;  // of a launched rank: from now on it does not outlive its launcher

  bool talks() const { return !launched || launched->rank == 0; }
};

// The environment of a launcher and PLAIT_* variables, with the flags --bind, --job_id, --rdzv_timeout, --stop_grace over them.
// Call it before any thread exists. Errors: Error(kUsage) that names the variable or flag.
RunPlace read_run_place(const CommandFlags& flags);

// The config with the world it will run in: sizes from a launcher's environment, else from the settings. Prints the notices on rank 0.
// One process with several threads is started anew, once, with libgomp told to wait without long spinning.
// Error(kResource): CUDA asked for (train.device, train.comm.backend nccl) where files tell that there is none.
Config load_command_config(const CommandFlags& flags, const RunPlace& place);

// Error(kResource) when this process would start far more ranks than the machine has cores: a slip of the keyboard rather than a wish.
void refuse_crowd(const Config& config, const RunPlace& place);

// Runs `prepare`: what a command does between its settings and run_ranks. When it throws in rank 0 of a launcher's ranks, those that come to
// meet it are told why and end with the same code.
void before_meeting(const Config& config, const RunPlace& place, const std::function<void()>& prepare);

// One rank of a run, connected: called in every rank process. `say`: lines for people. `control`: see Trainer.
using RankBody = std::function<int(Mesh& mesh, const std::function<void(const std::string&)>& say, const RunControl& control)>;

// Runs `body` on every rank of the layout: in this process when there is one rank or a launcher started us, else in forked local ranks.
// Ranks that a launcher started read their files themselves: they compare what `inputs` (null: none) hold. Returns the exit code.
int run_ranks(const Config& config, RunPlace& place, const std::string& log_dir, const RunInputs* inputs, const RankBody& body);

// What train.cpu_affinity will do with a rank that is started like this; nothing is done yet.
CpuPlacement planned_placement(const Config& config, const RankEnvironment& env);

// auto | cpu | cuda -> the device of this rank. Error(kResource) when cuda is asked for and not possible.
std::string resolve_device(const Config& config);

}  // namespace plait
