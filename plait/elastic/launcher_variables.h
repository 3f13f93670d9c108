// What the readers of launcher environments share: looking variables up, reading numbers from them, and LauncherView, one launcher's word
// about this process. Pure functions over a lookup, so that tests need no real environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/base/error.h"

namespace plait {

// Value of an environment variable, or none.
using Variable = std::function<std::optional<std::string>(const std::string& name)>;

namespace detail {

// Most ranks that a number may name.
inline constexpr int64_t kMostRanks = 1 << 20;

// A number and the variable that said it, for messages.
struct Given {
  std::string name;
  int64_t value = 0;
};
inline std::string said(const Given& given) { return cat(given.name, "=", given.value); }

// What one launcher says. Sizes of 1 are filled too: the caller decides whether that is a launcher.
struct LauncherView {
  std::string launcher;  // "Slurm", "OpenMPI", "MPICH"
  Given rank, world_size, local_rank, local_world_size;
  int64_t node_rank = 0;
  std::string master_addr;  // "" = not known
  int master_port = 0;      // 0 = not known
  std::string job_id;
  std::string address_hint;  // why there is no address, or how sure it is
};

// Text without variable, or an empty one: none.
std::optional<std::string> filled(const Variable& variable, const std::string& name);

// Whole number in [least, most]. Error(kUsage): "the environment variable RANK=x is not a whole number from 0 to 3 (below WORLD_SIZE 4)".
int64_t number(const std::string& name, const std::string& text, int64_t least, int64_t most, const std::string& rule);

// The variable as a number, none when it is absent or empty.
std::optional<Given> given_number(const Variable& variable, const std::string& name, int64_t least, int64_t most, const std::string& rule);

// A TCP port from 15000 to 29999 (below the ports that systems hand out to clients) that follows from the text: all ranks of a job compute
// the same one, two jobs on a machine most likely different ones.
int port_from(std::string_view job);

}  // namespace detail
}  // namespace plait
