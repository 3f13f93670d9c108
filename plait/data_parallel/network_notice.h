// What gradients over the data axis cost on the network where several data ranks share a machine: there the backends' collectives send once a
// machine, and messages between pairs of ranks (16-bit and fp8 compression, style p2p) once a rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/comm/process_group.h"
#include "plait/config/config.h"

namespace plait {

// One line for the user, with the factor and what to take instead; empty when the settings send no such messages, or no two members share a
// machine, or all do. element_size: bytes of a gradient's number. Collective over the data group, which must have the settings in common.
std::string network_notice(const Config& config, ProcessGroup& data, int64_t element_size);
// The same where the machine of each member is known: any number, equal on one machine.
std::string network_notice(const Config& config, const std::vector<int64_t>& machines, int64_t element_size);

}  // namespace plait
