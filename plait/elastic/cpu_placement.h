// Which cores a rank runs on (train.cpu_affinity). Ranks that together have as many threads as the machine gives them cores are pinned, each to
// cores of its own: else two of them now and then share one core for seconds while another idles. With fewer or more threads than cores the
// kernel's scheduler does better and nothing is done. No torch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/elastic/environment.h"

namespace plait {

// Cores this thread may run on, ascending; empty where the system does not say.
std::vector<int> allowed_cores();

struct CpuPlacement {
  std::vector<int> cores;  // of this rank, ascending; empty = it is not pinned
  std::string reason;      // for people: what was done, or why nothing
};

// What train.cpu_affinity means for this rank. `allowed`: of the process as it was started; `num_online`: cores of the machine. Cores that a
// launcher chose for each rank (fewer than the machine has, under a launcher other than plait's) and those that OMP_PROC_BIND,
// OMP_PLACES or GOMP_CPU_AFFINITY speak of stay as they are.
CpuPlacement place_rank(Affinity wish, const RankEnvironment& env, int64_t threads_per_rank, const std::vector<int>& allowed,
                        int64_t num_online, const std::function<bool(const std::string&)>& variable_is_set);

// The same for this process as it is.
CpuPlacement plan_placement(Affinity wish, const RankEnvironment& env, int64_t threads_per_rank);

// The same, and done: the calling thread, and threads it starts from now on, run on the rank's cores only. A system that
// refuses leaves the rank unpinned, and `reason` says so.
CpuPlacement pin_rank(Affinity wish, const RankEnvironment& env, int64_t threads_per_rank);

// "0-2,5"
std::string core_list(const std::vector<int>& cores);

}  // namespace plait
