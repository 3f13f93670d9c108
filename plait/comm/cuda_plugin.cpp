#include "plait/comm/cuda_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include "plait/base/error.h"

namespace plait::detail {

std::vector<std::string> cuda_plugin_paths() {
  std::string program(4096, '\0');
  ssize_t length = ::readlink("/proc/self/exe", program.data(), program.size());
  program.resize(length > 0 ? static_cast<size_t>(length) : 0);
  std::string folder = program.substr(0, program.rfind('/'));
  return {folder + "/libplait_cuda.so", folder + "/../lib/plait/libplait_cuda.so"};
}

const CudaPlugin& load_cuda_plugin() {
  auto paths = cuda_plugin_paths();
  std::string path;
  for (const auto& candidate : paths)
    if (path.empty() && ::access(candidate.c_str(), R_OK) == 0) path = candidate;
  if (path.empty())
    throw_error(ExitCode::kResource, "device cuda needs the plugin libplait_cuda.so, which is neither ", join(paths, " nor "),
                "; build plait where a CUDA toolkit is installed, or use device cpu");
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
