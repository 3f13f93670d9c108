// Environments as launchers write them, for the tests of this folder.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "plait/elastic/environment.h"

namespace plait {

using Variables = std::map<std::string, std::string>;

inline Variable lookup(Variables variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}

inline Variables torchrun_rank() {
  return {{"RANK", "5"},           {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "n0.x"}, {"MASTER_PORT", "29500"}, {"GROUP_RANK", "1"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

// srun (22.05): task 9 of 11 on three nodes.
inline Variables slurm_task() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_JOBID", "4711"},
          {"SLURM_STEP_ID", "2"},
          {"SLURM_STEPID", "2"},
          {"SLURM_PROCID", "9"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "2"},
          {"SLURM_NTASKS", "11"},
          {"SLURM_NPROCS", "11"},
          {"SLURM_STEP_NUM_TASKS", "11"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_STEP_NODELIST", "n[07-08],gpu-3"},
          {"SLURM_JOB_NODELIST", "n[01-20]"},
          {"SLURM_NODELIST", "n[01-20]"},
          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
          {"SLURM_TASKS_PER_NODE", "4(x20)"},
          {"SLURM_LAUNCH_NODE_IPADDR", "192.0.2.9"}};
}

// mpirun of OpenMPI 4.1.4: rank 3 of 4 on two nodes.
inline Variables openmpi_rank() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"OMPI_COMM_WORLD_NODE_RANK", "1"},
          {"OMPI_UNIVERSE_SIZE", "4"},
          {"OMPI_MCA_ess_base_jobid", "1315504129"},
          {"OMPI_MCA_orte_hnp_uri", "1315504128.0;tcp://127.0.0.1,192.0.2.2:34607;tcp6://[fd00::2]:37529"},
          {"PMIX_NAMESPACE", "1315504129"},
          {"PMIX_RANK", "3"},
          {"PMIX_SERVER_URI41", "1315504128.0;tcp4://127.0.0.1:37345"}};
}

// mpiexec of MPICH 4.0.2: rank 1 of 4 on one node.
inline Variables mpich_rank() {
  return {{"PMI_FD", "8"},          {"PMI_RANK", "1"},        {"PMI_SIZE", "4"},
          {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "n1"}};
}

}  // namespace plait
