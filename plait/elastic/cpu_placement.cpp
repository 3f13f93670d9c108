#include "plait/elastic/cpu_placement.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "plait/base/error.h"

namespace plait {

namespace {

constexpr int kMostCores = 8192;

// A set for more cores than cpu_set_t has room for.
struct CoreSet {
  std::vector<cpu_set_t> words = std::vector<cpu_set_t>(kMostCores / CPU_SETSIZE);
  size_t size() const { return words.size() * sizeof(cpu_set_t); }
};

}  // namespace

std::vector<int> allowed_cores() {
  CoreSet set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, set.size(), set.words.data()) != 0) return cores;
  for (int core = 0; core < kMostCores; ++core)
    if (CPU_ISSET_S(static_cast<size_t>(core), set.size(), set.words.data())) cores.push_back(core);
  return cores;
}

std::string core_list(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += cat(text.empty() ? "" : ",", cores[i], last > i ? cat("-", cores[last]) : "");
    i = last + 1;
  }
  return text;
}

CpuPlacement place_rank(Affinity wish, const RankEnvironment& env, int64_t threads_per_rank, const std::vector<int>& allowed,
                        int64_t num_online, const std::function<bool(const std::string&)>& variable_is_set) {
  auto num_cores = static_cast<int64_t>(allowed.size());
  std::string ranks = cat(env.local_world_size, env.local_world_size == 1 ? " rank x " : " ranks x ", threads_per_rank,
                          threads_per_rank == 1 ? " thread on " : " threads on ", num_cores, num_cores == 1 ? " core" : " cores");
  if (wish == Affinity::kNone) return {{}, cat(ranks, ": not pinned (train.cpu_affinity none)")};
  if (env.local_world_size < 2) return {{}, cat(ranks, ": one rank needs no pinning")};
  const bool own_launcher = env.launcher.empty() || env.launcher == "plait";
  if (!own_launcher && num_cores < num_online)
    return {{}, cat(ranks, ": the cores that ", env.launcher, " chose (", core_list(allowed), " of ", num_online, ") stay as they are")};
  if (env.local_world_size * threads_per_rank != num_cores)
    return {{},
            cat(ranks, ": not pinned, there are ", env.local_world_size * threads_per_rank < num_cores ? "more" : "fewer",
                " cores than threads")};
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (variable_is_set(name)) return {{}, cat(ranks, ": not pinned, ", name, " is set")};
  auto first = allowed.begin() + env.local_rank * threads_per_rank;
  return {{first, first + threads_per_rank}, cat(ranks, ": each rank stays on its own")};
}

CpuPlacement plan_placement(Affinity wish, const RankEnvironment& env, int64_t threads_per_rank) {
  auto is_set = [](const std::string& name) { return process_variable(name).has_value(); };
  return place_rank(wish, env, threads_per_rank, allowed_cores(), ::sysconf(_SC_NPROCESSORS_ONLN), is_set);
}

CpuPlacement pin_rank(Affinity wish, const RankEnvironment& env, int64_t threads_per_rank) {
  CpuPlacement placement = plan_placement(wish, env, threads_per_rank);
  if (placement.cores.empty()) return placement;
  CoreSet set;
  for (int core : placement.cores) CPU_SET_S(static_cast<size_t>(core), set.size(), set.words.data());
  if (::sched_setaffinity(0, set.size(), set.words.data()) != 0) {
    placement.cores.clear();
    placement.reason = cat("not pinned, the system refuses it: ", std::strerror(errno));
  }
  return placement;
}

}  // namespace plait
