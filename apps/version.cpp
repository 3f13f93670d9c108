#include "apps/version.h"

#include <ATen/Version.h>
#include <dlfcn.h>

#include "plait/base/text.h"
#include "plait/comm/cuda_plugin.h"
#include "plait/comm/mpi_plugin.h"
#include "plait/comm/plugin_paths.h"

namespace plait {

extern const char* const kGitCommit;  // a source made at every build (cmake/build_info.cmake)

TorchLibrary torch_library() {
  TorchLibrary library;
  std::string text = at::show_config(), mark = "TORCH_VERSION=";
  if (size_t at = text.find(mark); at != std::string::npos) {
    at += mark.size();
    library.version = text.substr(at, text.find_first_of(", \n", at) - at);
  }
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::show_config), &info) && info.dli_fname) library.path = info.dli_fname;
  return library;
}

namespace {

// "; MPI: OpenMPI, MPICH": the plugins that are there.
std::string mpi_text() {
  std::vector<std::string> names;
  if (!detail::find_plugin(detail::kOpenMpiPluginFile).empty()) names.push_back("OpenMPI");
  if (!detail::find_plugin(detail::kMpichPluginFile).empty()) names.push_back("MPICH");
  return names.empty() ? "" : cat("; MPI plugins: ", join(names));
}

}  // namespace

std::string cuda_plugin_path() { return detail::find_plugin(detail::kCudaPluginFile); }

std::string nccl_version() { return cuda_plugin_path().empty() ? "" : PLAIT_NCCL_VERSION; }

std::string version_text() {
  TorchLibrary torch = torch_library();
  std::string plugin = cuda_plugin_path(), nccl = nccl_version();
  return cat("plait ", PLAIT_VERSION, "\n  git       ", kGitCommit, "\n  compiler  ", PLAIT_COMPILER, ", ", PLAIT_BUILD_TYPE,
             "\n  torch     ", torch.version.empty() ? "unknown version" : torch.version, " (", torch.path, ")",
             "\n  CPU       shared memory; Gloo of torch", mpi_text(), "\n  CUDA      ",
             plugin.empty() ? std::string("no plugin (libplait_cuda.so)")
                            : cat("NCCL ", nccl.empty() ? "of unknown version" : nccl, " (", plugin, ")"),
             "\n");
}

}  // namespace plait
