// Slurm: what `srun` tells the tasks of a job step. An sbatch script and an salloc shell are no tasks, though they see SLURM_JOB_ID and
// SLURM_PROCID too. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "plait/elastic/launcher_variables.h"

namespace plait {

// "n[1-3,07],gpu-[001-010]x[1-2],login" -> names in Slurm's order; zero padding is kept. Error(kUsage) that names `variable_name` for a
// list that is cut off, not a list, or longer than 2^20 names.
std::vector<std::string> expand_node_list(const std::string& list, const std::string& variable_name = "SLURM_STEP_NODELIST");

// "4(x2),3" -> {4, 4, 3}. Error(kUsage) as above.
std::vector<int64_t> expand_tasks_per_node(const std::string& text, const std::string& variable_name = "SLURM_STEP_TASKS_PER_NODE");

namespace detail {
// The job step this process is a task of, or none: not under srun. Address: the first host of the step's list, where Slurm puts task 0
// (not SLURM_LAUNCH_NODE_IPADDR, which is where srun runs). Port: from the ids of job and step.
std::optional<LauncherView> read_slurm_step(const Variable& variable);
}  // namespace detail

}  // namespace plait
