// OpenMPI's and MPICH's (Hydra, also Intel MPI) launchers: what mpirun tells its ranks. No MPI library is used; the ranks meet over plait's own
// rendezvous. Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "plait/elastic/launcher_variables.h"

namespace plait {

// The process that started this rank on this machine, as text that differs between any two jobs ("hydra-8855-1234567": process id and start
// time of the nearest ancestor whose name starts with `name`), or "". Reads /proc.
std::string launching_ancestor(const std::string& name);

namespace detail {

// Host or address in mpirun's own contact line, "1315504128.0;tcp://192.0.2.2,10.0.0.1:34607;tcp6://[fd00::2]:37529" -> "192.0.2.2": the first
// that is not loopback, IPv4 before IPv6. "" when there is none.
std::string contact_address(const std::string& uri);

// OMPI_COMM_WORLD_*, set by OpenMPI's mpirun (4 and 5); none without. Address: loopback on one node, else where mpirun itself runs.
std::optional<LauncherView> read_openmpi(const Variable& variable);

// PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS, set by Hydra; none without. Hydra names no host: address on one node only.
// `ancestor` as launching_ancestor.
std::optional<LauncherView> read_pmi(const Variable& variable, const std::function<std::string(const std::string&)>& ancestor);

}  // namespace detail
}  // namespace plait
