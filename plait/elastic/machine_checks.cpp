// Checks of cores, memory and limits; those of the network and of folders are in machine_checks_network.cpp.
#include "plait/elastic/machine_checks.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "plait/base/control_groups.h"
#include "plait/base/error.h"
#include "plait/base/text.h"
#include "plait/elastic/environment.h"

namespace plait {

namespace {

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

// kB of a line "MemAvailable:  123 kB".
int64_t meminfo_bytes(const std::string& text, const std::string& name) {
  size_t at = text.find(name + ":");
  if (at == std::string::npos) return 0;
  return std::atoll(text.c_str() + at + name.size() + 1) * 1024;
}

std::string cores_text(double cores) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", cores);
  return buffer;
}

}  // namespace

const char* check_word(CheckStatus status) {
  constexpr const char* kWords[] = {"OK", "note", "warning", "FAIL"};
  return kWords[static_cast<int>(status)];
}

std::string bytes_text(int64_t bytes) {
  char buffer[64];
  if (bytes >= kGiB) std::snprintf(buffer, sizeof buffer, "%.1f GiB", static_cast<double>(bytes) / kGiB);
  else if (bytes >= kMiB) std::snprintf(buffer, sizeof buffer, "%.0f MiB", static_cast<double>(bytes) / kMiB);
  else if (bytes >= 1024) std::snprintf(buffer, sizeof buffer, "%.0f KiB", static_cast<double>(bytes) / 1024);
  else std::snprintf(buffer, sizeof buffer, "%ld bytes", static_cast<long>(bytes));
  return buffer;
}

MachineCheck check_cores(const MachineUse& use) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int64_t usable = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : ::sysconf(_SC_NPROCESSORS_ONLN);
  int64_t online = ::sysconf(_SC_NPROCESSORS_ONLN);
  MachineCheck check{"cores", CheckStatus::kOk, cat(usable, " of ", online, " cores"), ""};
  double share = static_cast<double>(usable);
  if (auto quota = control_group_cores(use.root); quota && *quota < share) {
    share = *quota;
    check = {
        "cores", CheckStatus::kWarning, cat(check.found, ", but the cgroup allows the time of ", cores_text(*quota)),
        cat("give the container or job more CPU time, or set OMP_NUM_THREADS to ",
            std::max<int64_t>(1, static_cast<int64_t>(share) / use.ranks_per_node), ": more threads than that only wait for each other")};
  }
  if (share < static_cast<double>(use.ranks_per_node)) {
    check.status = CheckStatus::kWarning;
    check.found += cat(" for ", use.ranks_per_node, " ranks");
    if (check.remedy.empty()) check.remedy = "start at most one rank a core: ranks that share one take turns";
  } else if (usable < online && check.remedy.empty()) {
    check.found += " (affinity)";
  }
  return check;
}

MachineCheck check_memory(const MachineUse& use) {
  std::string text = read_system_file(use.root + "/proc/meminfo");
  int64_t total = meminfo_bytes(text, "MemTotal"), available = meminfo_bytes(text, "MemAvailable");
  if (total == 0) return {"memory", CheckStatus::kNote, "/proc/meminfo cannot be read", "look with free -h"};
  MachineCheck check{"memory", CheckStatus::kOk, cat(bytes_text(available), " free of ", bytes_text(total)), ""};
  if (auto group = control_group_memory(use.root); group && group->limit_bytes < total) {
    available = std::min(available, group->free_bytes());
    check.found = cat(bytes_text(available), " free of ", bytes_text(group->limit_bytes), " that the cgroup allows (the machine has ",
                      bytes_text(total), ")");
  }
  constexpr int64_t kLeast = 256 * kMiB, kFewForARank = 512 * kMiB;  // a rank without a model takes about 200 MiB
  if (available < kLeast) {
    check.status = CheckStatus::kFail;
    check.remedy = "a rank does not start with so little: end other programs, or give the container or job more memory";
  } else if (available / use.ranks_per_node < kFewForARank) {
    check.status = CheckStatus::kWarning;
    check.remedy = cat("less than ", bytes_text(kFewForARank), " for each of ", use.ranks_per_node,
                       " ranks: end other programs, start fewer ranks, or give the container or job more memory");
  }
  return check;
}

MachineCheck check_shared_memory(const MachineUse& use) {
  struct statvfs info {};
  std::string path = use.root + "/dev/shm";
  if (::statvfs(path.c_str(), &info) != 0)
    return {"/dev/shm", CheckStatus::kWarning, "not there", "NCCL needs it between GPUs of one machine: mount -t tmpfs tmpfs /dev/shm"};
  auto bytes = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  MachineCheck check{"/dev/shm", CheckStatus::kOk, cat(bytes_text(bytes), " free"), ""};
  if (bytes < 256 * kMiB) {
    check.status = CheckStatus::kWarning;
    check.remedy =
        "NCCL needs more between GPUs of one machine (ranks on CPUs do not use it): docker run --shm-size=8g, or a memory volume in "
        "Kubernetes";
  }
  return check;
}

MachineCheck check_huge_pages(const MachineUse& use) {
  std::string text = read_system_file(use.root + "/sys/kernel/mm/transparent_hugepage/enabled");
  size_t begin = text.find('['), end = text.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    return {"huge pages", CheckStatus::kNote, "the kernel does not say", ""};
  std::string word = text.substr(begin + 1, end - begin - 1);
  if (word == "never")
    return {"huge pages", CheckStatus::kWarning, "transparent huge pages: never",
            "steps touch fresh memory more slowly without them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"};
  return {"huge pages", CheckStatus::kOk, "transparent huge pages: " + word, ""};
}

MachineCheck check_gpus(const MachineUse& use, bool has_plugin) {
  int64_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(use.root + "/proc/driver/nvidia/gpus", error), end; !error && it != end; it.increment(error))
    ++count;
  std::string version = read_system_file(use.root + "/proc/driver/nvidia/version");
  version = version.substr(0, version.find('\n'));
  bool device = ::access((use.root + "/dev/nvidiactl").c_str(), F_OK) == 0;
  if (count == 0 && version.empty() && !device) return {"GPUs", CheckStatus::kOk, "none: ranks compute on CPUs", ""};
  MachineCheck check{"GPUs", CheckStatus::kOk, cat(count, " NVIDIA GPUs, driver ", version.empty() ? "unknown" : version), ""};
  if (!device) {
    check.status = CheckStatus::kWarning;
    check.remedy = "/dev/nvidiactl is not here, so they cannot be used: start the container with --gpus all, or load the driver's modules";
  } else if (!has_plugin) {
    check.status = CheckStatus::kWarning;
    check.remedy = "this plait has no CUDA plugin: build it where a CUDA toolkit and NCCL are installed, or set train.device: cpu";
  } else if (use.ranks_per_node > count && count > 0) {
    check.status = CheckStatus::kFail;
    check.remedy = cat("every rank needs a GPU of its own: start ", count, " ranks on this machine instead of ", use.ranks_per_node,
                       ", or set train.device: cpu");
  }
  return check;
}

MachineCheck check_clock(const MachineUse&) {
  struct timex state {};
  int answer = ::adjtimex(&state);  // reads only: modes is 0
  if (answer < 0) return {"clock", CheckStatus::kNote, "the kernel does not say whether it is synchronised", ""};
  if (answer == TIME_ERROR || (state.status & STA_UNSYNC))
    return {"clock", CheckStatus::kWarning, "not synchronised by NTP",
            "lines of several machines are hard to put in order: run chrony or systemd-timesyncd (in a container: on the host)"};
  return {"clock", CheckStatus::kOk, cat("synchronised, at most ", state.maxerror / 1000, " ms off"), ""};
}

MachineCheck check_descriptors(const MachineUse& use) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {"descriptors", CheckStatus::kNote, "the limit cannot be read", ""};
  int64_t ranks = use.num_nodes * use.ranks_per_node;
  // A rank holds files of its own and a connection to every member of its groups, in the worst case twice for each other rank.
  int64_t needed = 128 + 4 * ranks;
  bool endless = limit.rlim_cur == RLIM_INFINITY;
  auto soft = static_cast<int64_t>(limit.rlim_cur);
  MachineCheck check{"descriptors", CheckStatus::kOk, cat(endless ? "no limit" : cat(soft), " open files a process"), ""};
  if (endless || soft >= std::max<int64_t>(1024, needed)) return check;
  check.status = soft < needed ? CheckStatus::kFail : CheckStatus::kWarning;
  check.remedy = cat(ranks, " ranks may need ", needed, " a process: ulimit -n 65536 (hard limit ",
                     limit.rlim_max == RLIM_INFINITY ? std::string("none") : cat(static_cast<int64_t>(limit.rlim_max)), ")");
  return check;
}

MachineCheck check_processes(const MachineUse& use) {
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NPROC, &limit);
  int64_t most = limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(limit.rlim_cur);
  std::string source = "ulimit -u";
  if (auto pids = control_group_processes(use.root); pids && *pids < most) most = *pids, source = "pids.max of the cgroup";
  MachineCheck check{"processes", CheckStatus::kOk,
                     most == INT64_MAX ? "no limit" : cat("at most ", most, " processes and threads (", source, ")"), ""};
  int64_t cores = std::max<int64_t>(1, ::sysconf(_SC_NPROCESSORS_ONLN));
  int64_t needed = use.ranks_per_node * (16 + cores);  // threads of torch, Gloo and OpenMP
  if (most < needed) {
    check.status = CheckStatus::kFail;
    check.remedy = cat(use.ranks_per_node, " ranks start about ", needed, " threads: raise it");
  } else if (most < 4 * needed) {
    check.status = CheckStatus::kWarning;
    check.remedy = cat(use.ranks_per_node, " ranks start about ", needed, " threads, beside everything else that runs: raise it");
  }
  return check;
}

MachineCheck check_launcher(const std::optional<RankEnvironment>& launched, const std::string& problem) {
  if (!problem.empty()) return {"launcher", CheckStatus::kFail, problem, "set the variables as the message says"};
  if (!launched) return {"launcher", CheckStatus::kOk, "none: plait starts its own ranks", ""};
  const RankEnvironment& env = *launched;
  std::string found =
      cat(env.launcher, ": rank ", env.rank, " of ", env.world_size, ", local rank ", env.local_rank, " of ", env.local_world_size);
  if (env.world_size > 1) found += cat(", meets at ", env.master_addr, ":", env.master_port);
  return {"launcher", CheckStatus::kOk, found, ""};
}

CheckStatus worst(const std::vector<MachineCheck>& checks) {
  CheckStatus status = CheckStatus::kOk;
  for (const auto& check : checks) status = std::max(status, check.status);
  return status;
}

std::vector<MachineCheck> check_machine(const MachineUse& use) {
  return {check_cores(use),       check_memory(use),    check_shared_memory(use), check_huge_pages(use),
          check_descriptors(use), check_processes(use), check_clock(use),         check_work_dir(use),
          check_network(use),     check_host_name(use), check_ports(use),         check_firewall(use)};
}

}  // namespace plait
