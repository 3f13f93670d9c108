#include "plait/elastic/mpi_environment.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include "plait/rendezvous/address.h"

namespace plait {

namespace {

struct ProcessLine {
  std::string name;
  std::string parent, start_time;
};

// Of /proc/PID/stat: "8855 (hydra pmi) S 8854 ...": the name may hold spaces and brackets, so fields count from the last bracket.
std::optional<ProcessLine> read_process(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessLine process;
  process.name = line.substr(open + 1, close - open - 1);
  std::istringstream rest(line.substr(close + 1));
  std::string word;
  for (int field = 3; rest >> word && field <= 22; ++field) {
    if (field == 4) process.parent = word;
    if (field == 22) process.start_time = word;
  }
  return process;
}

detail::Given required_number(const Variable& variable, const std::string& name, const std::string& given, int64_t least, int64_t most,
                              const std::string& rule) {
  auto value = detail::given_number(variable, name, least, most, rule);
  if (!value) throw_error(ExitCode::kUsage, "the environment variable ", name, " is not set, but ", given, " is: mpirun sets both");
  return *value;
}

// Rank, size, local rank and size from variables of these names.
detail::LauncherView read_numbers(const Variable& variable, const std::string& launcher, const char* rank, const char* size,
                                  const char* local_rank, const char* local_size) {
  using detail::kMostRanks;
  detail::LauncherView view;
  view.launcher = launcher;
  view.world_size = required_number(variable, size, rank, 1, kMostRanks, "the number of ranks");
  int64_t world = view.world_size.value;
  view.rank = required_number(variable, rank, size, 0, world - 1, cat("below ", detail::said(view.world_size)));
  if (world == 1) {
    view.local_rank = {local_rank, 0};
    view.local_world_size = {local_size, 1};
    return view;
  }
  view.local_world_size = required_number(variable, local_size, rank, 1, world, cat("at most ", detail::said(view.world_size)));
  view.local_rank =
      required_number(variable, local_rank, rank, 0, view.local_world_size.value - 1, cat("below ", detail::said(view.local_world_size)));
  return view;
}

// "prterun-HOST-PID@1" (OpenMPI 5) -> HOST
std::string host_of_namespace(const std::string& name) {
  auto begin = name.find('-'), end = name.rfind('-');
  return name.starts_with("prterun-") && begin < end ? name.substr(begin + 1, end - begin - 1) : "";
}

}  // namespace

std::string launching_ancestor(const std::string& name) {
  std::string pid = cat(static_cast<int64_t>(::getppid()));
  for (int level = 0; level < 64 && pid != "0" && !pid.empty(); ++level) {
    auto process = read_process(pid);
    if (!process) break;
    if (process->name.starts_with(name)) return cat(name, "-", pid, "-", process->start_time);
    pid = process->parent;
  }
  return "";
}

namespace detail {

std::string contact_address(const std::string& uri) {
  for (const char* scheme : {"tcp://", "tcp6://"}) {
    auto begin = uri.find(scheme);
    if (begin == std::string::npos) continue;
    begin += std::string_view(scheme).size();
    std::string part = uri.substr(begin, uri.find(';', begin) - begin);
    part = part.substr(0, part.rfind(':'));  // the port
    if (part.starts_with('[') && part.ends_with(']')) part = part.substr(1, part.size() - 2);
    std::istringstream addresses(part);
    for (std::string address; std::getline(addresses, address, ',');)
      if (!address.empty() && !rendezvous::is_loopback_host(address)) return address;
  }
  return "";
}

std::optional<LauncherView> read_openmpi(const Variable& variable) {
  if (!filled(variable, "OMPI_COMM_WORLD_RANK") && !filled(variable, "OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  LauncherView view = read_numbers(variable, "OpenMPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                   "OMPI_COMM_WORLD_LOCAL_SIZE");
  std::string space = filled(variable, "PMIX_NAMESPACE").value_or("");
  std::string job = filled(variable, "OMPI_MCA_ess_base_jobid").value_or(space);
  if (!job.empty()) {
    view.job_id = "openmpi-" + job;
    view.master_port = port_from(view.job_id);
  }
  if (view.local_world_size.value == view.world_size.value) {
    view.master_addr = "127.0.0.1";
    return view;
  }
  view.master_addr = contact_address(filled(variable, "OMPI_MCA_orte_hnp_uri").value_or(""));
  if (view.master_addr.empty()) view.master_addr = host_of_namespace(space);
  view.address_hint = view.master_addr.empty()
                          ? "mpirun does not say where it runs"
                          : cat("the ranks meet at ", view.master_addr,
                                ", where mpirun runs; if rank 0 runs elsewhere, give its host: mpirun -x MASTER_ADDR=HOST");
  return view;
}

std::optional<LauncherView> read_pmi(const Variable& variable, const std::function<std::string(const std::string&)>& ancestor) {
  if (!filled(variable, "PMI_RANK") || !filled(variable, "PMI_SIZE")) return std::nullopt;
  LauncherView view = read_numbers(variable, "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  // The host part of PMI_PORT is a proxy's, one a node: good enough to tell jobs apart, not to meet at.
  for (const char* name : {"PMI_JOBID", "PMI_KVS", "PMI_PORT"})
    if (view.job_id.empty())
      if (auto text = filled(variable, name)) view.job_id = "mpich-" + *text;
  if (view.local_world_size.value == view.world_size.value) {
    view.master_addr = "127.0.0.1";
    if (view.job_id.empty() && view.world_size.value > 1) view.job_id = ancestor("hydra_");
    view.master_port = port_from(view.job_id);
    return view;
  }
  view.job_id.clear();  // what differs from node to node is no job id
  view.address_hint =
      "MPICH's launcher names no host; give them: mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500 ..., HOST = the machine of rank 0";
  return view;
}

}  // namespace detail
}  // namespace plait
