// MPI lives in libplait_openmpi.so and libplait_mpich.so, one for each library that CMake found, and one of them is loaded when
// train.comm.backend is mpi. This header is the whole contract between the program and the plugins: bytes between the ranks of a
// group, nothing of torch, no data types, no sums.
// Thread rule: one thread at a time (MPI_THREAD_SERIALIZED); start() and end() on the same one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plait::detail {

constexpr int kMpiPluginVersion = 1;

struct MpiGroup;    // a communicator; lives until end()
struct MpiRequest;  // an operation under way

// Functions throw std::runtime_error, or std::logic_error when the caller's sizes, tags or ranks are wrong. Operations return at once;
// their memory stays untouched until finished() says true. Collectives of a group begin in the same order on all members.
struct MpiPlugin {
  int version;
  std::string (*library)();  // "Open MPI v4.1.4"; before start() too
  // Of the process, once: MPI_Init_thread, MPI_Finalize. Both are collective over all ranks that the launcher started.
  void (*start)();
  void (*end)();
  int (*rank)();
  int (*size)();
  // Collective over `ranks` (of the launcher) alone; `tag` tells groups apart that are made at the same time.
  MpiGroup* (*make_group)(const std::vector<int>& ranks, int tag);
  // out + r * stride gets `bytes` of member r.
  MpiRequest* (*all_gather)(MpiGroup* group, const void* in, void* out, int64_t bytes, int64_t stride);
  // In place: buffer holds the members' parts one behind the other, bytes[r] long.
  MpiRequest* (*all_gather_parts)(MpiGroup* group, void* buffer, const std::vector<int>& bytes);
  // Member r gets `bytes` at in + r * stride of every member; out holds what came, by member.
  MpiRequest* (*all_to_all)(MpiGroup* group, const void* in, int64_t stride, void* out, int64_t bytes);
  // The same with parts of bytes[r], one behind the other in `in`.
  MpiRequest* (*all_to_all_parts)(MpiGroup* group, const void* in, const std::vector<int>& bytes, void* out);
  MpiRequest* (*broadcast)(MpiGroup* group, void* buffer, int64_t bytes, int root);
  MpiRequest* (*barrier)(MpiGroup* group);
  MpiRequest* (*send)(MpiGroup* group, const void* buffer, int64_t bytes, int destination, int tag);
  MpiRequest* (*receive)(MpiGroup* group, void* buffer, int64_t bytes, int source, int tag);
  // Moves all operations of the process on. True: this one is over, the request is gone. When it throws, the request is gone too.
  bool (*finished)(MpiRequest* request);
};

extern "C" {
// The one symbol a plugin exports.
using MpiPluginEntry = const MpiPlugin* (*)();
}
constexpr const char *kOpenMpiPluginFile = "libplait_openmpi.so", *kMpichPluginFile = "libplait_mpich.so";
constexpr const char* kMpiPluginSymbol = "plait_mpi_plugin";

// Of the launcher's environment: "libplait_openmpi.so" (OMPI_COMM_WORLD_RANK, PMIX_RANK), "libplait_mpich.so" (PMI_RANK), "" without an
// MPI launcher. Where both could serve (srun), the one that is there.
std::string mpi_plugin_of_launcher();

// Path of that plugin. Throws Error(kUsage) without an MPI launcher, Error(kResource) where the plugin is missing.
std::string mpi_plugin_path();

// Loads it. Throws as mpi_plugin_path(), and Error(kResource) when it cannot be loaded.
const MpiPlugin& load_mpi_plugin();

}  // namespace plait::detail
