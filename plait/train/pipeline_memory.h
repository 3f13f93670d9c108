// What schedule auto may spend on activations: the memory that is free on the machine (or device) of each rank, shared out over the ranks
// there, the smallest share of all ranks, so that all choose alike.
#pragma once

#include <cstdint>
#include <string>

#include "plait/comm/mesh.h"

namespace plait {

// Bytes of one rank. Collective over the world.
double free_bytes_of_rank(const Mesh& mesh, at::Device device);

// MemAvailable of a /proc/meminfo, at most what the control groups leave. 0 when the text does not say.
int64_t available_bytes(const std::string& meminfo, int64_t left_by_groups);

}  // namespace plait
