// RankEnvironment: which rank this process is and where its peers meet. Filled by the local launcher for the ranks it
// forks, or read from the variables a launcher sets (docs/launchers.md): RANK and WORLD_SIZE (torchrun, plait launch, Kubeflow, by hand),
// else the Slurm job step, else OpenMPI, else PMI (MPICH). Plain numbers, no torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/elastic/launcher_variables.h"

namespace plait {

struct RankEnvironment {
  int64_t rank = 0;
  int64_t local_rank = 0;  // rank on this node
  int64_t world_size = 1;
  int64_t local_world_size = 1;  // ranks on this node: cores are shared between them
  int64_t node_rank = 0;
  std::string launcher;  // who started us, for messages: "plait", "torchrun", "Slurm", "OpenMPI", "MPICH", "Kubeflow", "variables"
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  bool foreign_store = false;  // a c10d TCPStore of the launcher's own stands at master_addr:master_port: connect as a client only
  bool listen = false;         // this process serves the rendezvous: rank 0 of a job without a foreign store
  int listen_fd = -1;          // bound socket inherited for it; -1 = bind `bind`, else master_addr
  std::string bind;            // address to listen on (PLAIT_BIND, --bind); empty = master_addr
  std::string job_id;          // PLAIT_JOB_ID, else the launcher's own id of the job (SLURM_JOB_ID, TORCHELASTIC_RUN_ID, ...); empty = none
  std::string secret;          // shared by all ranks of the job, never printed; empty = none
  std::chrono::milliseconds rendezvous_timeout{600000};  // PLAIT_RDZV_TIMEOUT, --rdzv_timeout
  int64_t restart_count = 0;                             // attempts before this one
  int status_fd = -1;                // shared page this rank writes its step and phase to (base/rank_status.h); -1 = none
  int launcher_fd = -1;              // readable end of a pipe that ends when the launcher is gone; -1 = none
  bool one_rank_a_node = false;      // RANK and WORLD_SIZE without LOCAL_RANK, as Kubeflow's PyTorchJob sets them: a pod is a rank
  std::vector<std::string> notices;  // what was decided between several launchers, for rank 0 to show
};

// The process's own environment variable, or none.
std::optional<std::string> process_variable(const std::string& name);

// The rank that a launcher made of this process, or none: then plait starts its own ranks. RANK, WORLD_SIZE or LOCAL_RANK always mean a
// launcher; a Slurm job step, OpenMPI or PMI only with a world of more than one (an sbatch script, an salloc shell and `mpirun -n 1` are
// none). Of two launchers, one started by the other, the inner one counts; a notice says so. MASTER_ADDR and MASTER_PORT win over
// what follows from the launcher. PLAIT_BIND, PLAIT_RDZV_TIMEOUT, PLAIT_JOB_ID, PLAIT_SECRET_FILE, PLAIT_SECRET_FD, PLAIT_LISTEN_FD,
// PLAIT_STATUS_FD, PLAIT_LAUNCHER_FD and PLAIT_RESTART_COUNT are read too.
// Throws Error(kUsage) that names variable and value when one is missing, no number, out of range, or contradicts another.
// `variable` replaces the process's environment in tests, `ancestor` the search for the process of MPICH's launcher.
std::optional<RankEnvironment> read_launcher_environment(const Variable& variable = process_variable,
                                                         const std::function<std::string(const std::string&)>& ancestor = {});

}  // namespace plait
