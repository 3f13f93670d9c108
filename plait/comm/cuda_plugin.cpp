#include "plait/comm/cuda_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include "plait/base/error.h"
#include "plait/comm/plugin_paths.h"

namespace plait::detail {

std::string missing_for_cuda() {
  if (find_plugin(kCudaPluginFile).empty())
    return cat("the plugin ", kCudaPluginFile, " is neither ", join(plugin_paths(kCudaPluginFile), " nor "),
               ": build plait where a CUDA toolkit is installed");
  // The driver's files on servers and desktops, under WSL 2, on Jetson boards.
  for (const char* file : {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvmap"})
    if (::access(file, F_OK) == 0) return "";
  return "no CUDA device was found on this machine (there is no /dev/nvidiactl)";
}

const CudaPlugin& load_cuda_plugin() {
  if (auto missing = missing_for_cuda(); !missing.empty())
    throw_error(ExitCode::kResource, "device cuda: ", missing, "; or use device cpu");
  const std::string path = find_plugin(kCudaPluginFile);
  // Global: libtorch_cuda registers its operators for the whole program. dlopen counts references, so a second call is cheap.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char* cause = ::dlerror();
    throw_error(ExitCode::kResource, "device cuda: ", path, " cannot be loaded: ", cause ? cause : "unknown cause",
                "; install the CUDA libraries of this torch, or use device cpu");
  }
  auto entry = reinterpret_cast<CudaPluginEntry>(::dlsym(library, kCudaPluginSymbol));
  const CudaPlugin* plugin = entry ? entry() : nullptr;
  if (!plugin || plugin->version != kCudaPluginVersion)
    throw_error(ExitCode::kResource, "device cuda: ", path, " belongs to another version of plait; build it again");
  if (plugin->device_count() < 1) throw_error(ExitCode::kResource, "device cuda: no CUDA device was found on this machine; use device cpu");
  return *plugin;
}

}  // namespace plait::detail
