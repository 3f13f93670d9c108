// RankEnvironment: which rank this process is and where its peers meet. Filled by the local launcher for the ranks it
// forks, or read from the variables a foreign launcher (torchrun and the like) sets. Plain numbers, no torch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "plait/base/error.h"

namespace plait {

struct RankEnvironment {
  int64_t rank = 0;
  int64_t local_rank = 0;  // rank on this node
  int64_t world_size = 1;
  int64_t local_world_size = 1;  // ranks on this node: cores are shared between them
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  bool listen = false;  // this process serves the store; false with a launcher that owns the port itself
  int listen_fd = -1;   // listening socket inherited for it; -1 = bind master_addr:master_port
};

// The process's own environment variable, or none.
std::optional<std::string> process_variable(const std::string& name);

// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, LOCAL_WORLD_SIZE (default WORLD_SIZE) and TORCHELASTIC_USE_AGENT_STORE
// ("True": the launcher serves the store, so no rank listens; else rank 0 listens). None when neither RANK, WORLD_SIZE nor LOCAL_RANK is
// set. Throws Error(kUsage) that names the variable when one is missing, no number, or out of range. `variable` replaces the
// process's environment in tests.
std::optional<RankEnvironment> read_launcher_environment(
    const std::function<std::optional<std::string>(const std::string&)>& variable = process_variable);

}  // namespace plait
