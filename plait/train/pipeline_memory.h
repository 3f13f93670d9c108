// What schedule auto may spend on activations: the memory that is free on the machine (or device) of each rank, shared out over the ranks
// there, the smallest share of all ranks, so that all choose alike.
#pragma once

#include <cstdint>
#include <string>

#include "plait/comm/mesh.h"

namespace plait {

// Bytes of one rank. Collective over the world.
double free_bytes_of_rank(const Mesh& mesh, at::Device device);

// MemAvailable of the machine whose /proc and /sys lie below `root` ("" = this one), at most what its control groups leave. 0 when it does
// not say.
int64_t available_bytes(const std::string& root);

}  // namespace plait
