#include <csignal>
#include <filesystem>
#include <iostream>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/elastic/launch_flags.h"
#include "plait/elastic/local_launcher.h"
#include "plait/elastic/worker_command.h"
#include "plait/rendezvous/secret.h"

namespace plait {

namespace {

// One node makes its own secret; several must be given the same one.
std::string job_secret(const LaunchCommand& command) {
  if (!command.secret_file.empty()) return rendezvous::read_secret_file(command.secret_file, "--secret_file");
  if (auto path = process_variable("PLAIT_SECRET_FILE"); path && !path->empty()) return rendezvous::read_secret_file(*path);
  if (command.num_nodes == 1) return rendezvous::make_secret();
  throw_error(
      ExitCode::kUsage, "launch: ", command.num_nodes,
      " nodes need a secret that they share, so that nobody else can join the job. Make it once, on a folder that all nodes see (or "
      "copy it), and name it on each of them:\n"
      "  (umask 077; head -c 32 /dev/urandom | base64 > plait.secret)\n"
      "  plait launch --secret_file plait.secret ...");
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_error(ExitCode::kUsage, "launch: --log_dir ", path, " cannot be made: ", error.message());
}

}  // namespace

CommandHelp launch_help() {
  return {
      "launch",
      "start the ranks of a job on one or several nodes, with torchrun's flags",
      {"launch [--nproc_per_node N] [flags] [--] PROGRAM [its flags]",
       "launch --nnodes N --node_rank R --master_addr HOST --secret_file FILE [flags] -- plait train CONFIG"},
      "Starts PROGRAM, plait train or any command, once a rank, shows the output of rank 0 and of the others warnings and errors, and "
      "ends all when one fails; the ROOT CAUSE block names it. Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR "
      "and MASTER_PORT in its environment. FILE.py is run with python3.",
      {{"--nproc_per_node", "N | auto | cpu | gpu",
        "ranks on this node: cpu = its cores, gpu = its CUDA devices, auto = gpu where there is one (default 1)"},
       {"--nnodes", "N", "nodes, each of which runs this command (MIN:MAX: MAX is used; default 1)"},
       {"--node_rank", "R", "number of this node, from 0"},
       {"--master_addr", "HOST", "address of node 0 that all nodes reach (one node: 127.0.0.1)"},
       {"--master_port", "PORT", "its port (one node: any free one; several: 29500)"},
       {"--rdzv_endpoint", "HOST[:PORT]", "both in one; an IPv6 address in brackets"},
       {"--rdzv_timeout", "SECONDS", "until all ranks must have come (default 600)"},
       {"--standalone", "", "one node, any free port: what happens anyway without --nnodes"},
       {"--bind", "ADDRESS", "address that rank 0 listens on (default: the master address)"},
       {"--job_id", "ID", "name of the job, --rdzv_id is the same: a rank of another job is refused"},
       {"--rdzv_id", "ID", "name of the job, as --job_id"},
       {"--secret_file", "FILE", "secret that all nodes share, readable for you alone; needed for several nodes"},
       {"--max_restarts", "N", "when a rank fails all start anew, at most N times (one node; default 0)"},
       {"--log_dir", "DIR", "everything that rank N prints goes to DIR/rank_N.log too"},
       {"--redirects", "0 | 1 | 2 | 3",
        "streams not shown: 1 stdout, 2 stderr, 3 both, or RANK:N,RANK:N with local ranks (needs --log_dir)"},
       {"--tee", "0 | 1 | 2 | 3", "streams shown of all ranks, in the same forms"},
       {"--stop_grace", "SECONDS", "between a signal and the end by force (default 60)"},
       {"--module", "", "PROGRAM is a Python module"},
       {"--no_python", "", "FILE.py is executed itself"}}};
}

int launch_command(int argc, char** argv) {
  LaunchCommand command = read_launch_command({argv + 1, argv + argc}, process_variable, count_machine());
  if (command.help) {
    std::cout << help_text(launch_help());
    return 0;
  }
  WorkerCommand worker = find_worker_command(command.program, command.module, command.no_python);
  LaunchOptions options;
  options.num_ranks = command.nproc_per_node;
  options.num_nodes = command.num_nodes;
  options.node_rank = command.node_rank;
  options.master_addr = command.master_addr;
  options.master_port = command.master_port;
  options.bind = command.bind;
  options.job_id = command.job_id;
  const bool several = command.nproc_per_node * command.num_nodes > 1;
  // A file that is named is read even where one rank needs no secret: a mistake in it shows now, not at the first real job.
  if (std::string secret = several || !command.secret_file.empty() ? job_secret(command) : std::string(); several) options.secret = secret;
  options.rendezvous_timeout = command.rendezvous_timeout;
  options.stop_grace = command.stop_grace;
  options.max_restarts = command.max_restarts;
  options.shown = command.shown;
  options.hidden_hint = "--tee 3 shows the lines of all ranks, --log_dir DIR keeps them";
  if (!command.log_dir.empty()) make_folder(command.log_dir);
  options.log_dir = command.log_dir;
  for (const std::string& notice : command.notices) log_info("launch: ", notice);
  if (command.num_nodes > 1)
    log_info("launch: node ", command.node_rank, " of ", command.num_nodes, ", ranks ", command.node_rank * command.nproc_per_node, " to ",
             (command.node_rank + 1) * command.nproc_per_node - 1, command.node_rank == 0 ? "" : "; the output of rank 0 is on node 0");
  options.body = [&](const RankEnvironment& environment) -> int {
    ::signal(SIGXFSZ, SIG_DFL);  // ours is ignored (apps/process_start.cpp); another program gets it as usual
    become_worker(worker, environment);
  };
  return launch_local_ranks(options);
}

}  // namespace plait
