// RankEnvironment: which rank this process is and where its peers meet. Filled by the local launcher for the ranks it
// forks, or read from the variables a foreign launcher (torchrun and the like) sets. Plain numbers, no torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "plait/base/error.h"

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
  int status_fd = -1;    // shared page this rank writes its step and phase to (base/rank_status.h); -1 = none
  int launcher_fd = -1;  // readable end of a pipe that ends when the launcher is gone; -1 = none
};

// The process's own environment variable, or none.
std::optional<std::string> process_variable(const std::string& name);

// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, LOCAL_WORLD_SIZE (default WORLD_SIZE) and TORCHELASTIC_USE_AGENT_STORE
// ("True": the launcher serves the store, so no rank listens; else rank 0 listens). None when neither RANK, WORLD_SIZE nor LOCAL_RANK is
// set. Throws Error(kUsage) that names the variable when one is missing, no number, or out of range. `variable` replaces the
// process's environment in tests.
std::optional<RankEnvironment> read_launcher_environment(
    const std::function<std::optional<std::string>(const std::string&)>& variable = process_variable);

}  // namespace plait
