// Where the parts that are loaded at run time lie: CUDA and MPI are plugins, so that one program serves machines with and without them.
#pragma once

#include <string>
#include <vector>

namespace plait::detail {

// Looked for in this order: beside the program, in ../lib/plait (installed).
std::vector<std::string> plugin_paths(const std::string& file);

// The first of them that can be read, or "".
std::string find_plugin(const std::string& file);

}  // namespace plait::detail
