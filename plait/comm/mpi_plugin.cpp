#include "plait/comm/mpi_plugin.h"

#include <dlfcn.h>

#include <cstdlib>

#include "plait/base/error.h"
#include "plait/comm/plugin_paths.h"

namespace plait::detail {
namespace {

bool mpi_variable_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

}  // namespace

std::string mpi_plugin_of_launcher() {
  if (mpi_variable_set("OMPI_COMM_WORLD_RANK")) return kOpenMpiPluginFile;
  // srun: --mpi=pmix serves both libraries, --mpi=pmi2 MPICH's.
  if (mpi_variable_set("PMI_RANK")) return kMpichPluginFile;
  if (mpi_variable_set("PMIX_RANK"))
    return find_plugin(kOpenMpiPluginFile).empty() && !find_plugin(kMpichPluginFile).empty() ? kMpichPluginFile : kOpenMpiPluginFile;
  return "";
}

std::string mpi_plugin_path() {
  const std::string file = mpi_plugin_of_launcher();
  if (file.empty())
    throw_error(ExitCode::kUsage,
                "train.comm.backend mpi needs ranks that an MPI launcher has started (mpirun -n N plait train ..., or srun --mpi=...); ",
                "nearest valid value auto");
  std::string path = find_plugin(file);
  if (path.empty())
    throw_error(ExitCode::kResource, "train.comm.backend mpi needs the plugin ", file, ", which is neither ",
                join(plugin_paths(file), " nor "), "; build plait where the headers of ", file == kMpichPluginFile ? "MPICH" : "OpenMPI",
                " are installed (Debian: ", file == kMpichPluginFile ? "libmpich-dev" : "libopenmpi-dev",
                "; then cmake build, setup/build.sh), or use train.comm.backend auto");
  return path;
}

const MpiPlugin& load_mpi_plugin() {
  const std::string path = mpi_plugin_path();
  // Global: OpenMPI loads its own components, which look for the library's symbols in the whole program.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char* cause = ::dlerror();
    throw_error(ExitCode::kResource, "train.comm.backend mpi: ", path, " cannot be loaded: ", cause ? cause : "unknown cause",
                "; install the MPI library it was built with, or use train.comm.backend auto");
  }
  auto entry = reinterpret_cast<MpiPluginEntry>(::dlsym(library, kMpiPluginSymbol));
  const MpiPlugin* plugin = entry ? entry() : nullptr;
  if (!plugin || plugin->version != kMpiPluginVersion)
    throw_error(ExitCode::kResource, "train.comm.backend mpi: ", path, " belongs to another version of plait; build it again");
  return *plugin;
}

}  // namespace plait::detail
