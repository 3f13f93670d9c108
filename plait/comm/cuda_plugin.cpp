#include "plait/comm/cuda_plugin.h"

#include <dlfcn.h>

#include "plait/base/error.h"
#include "plait/comm/plugin_paths.h"

namespace plait::detail {

const CudaPlugin& load_cuda_plugin() {
  const std::string path = find_plugin(kCudaPluginFile);
  if (path.empty())
    throw_error(ExitCode::kResource, "device cuda needs the plugin libplait_cuda.so, which is neither ",
                join(plugin_paths(kCudaPluginFile), " nor "), "; build plait where a CUDA toolkit is installed, or use device cpu");
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
