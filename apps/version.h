// What this program is made of, for `plait --version` and `plait doctor`. Read at run time where that is possible, as the libraries that
// are loaded may not be the ones of the build.
#pragma once

#include <string>

namespace plait {

// "2.11.0" and the file it was loaded from; empty when they cannot be told.
struct TorchLibrary {
  std::string version, path;
};
TorchLibrary torch_library();

// Where the CUDA plugin lies, or "".
std::string cuda_plugin_path();

// Of the headers the plugin was built with; "" without a plugin.
std::string nccl_version();

// First line "plait 0.1.0", then one indented line a part.
std::string version_text();

}  // namespace plait
