// The CUDA part lives in libplait_cuda.so and is loaded only when a CUDA device is asked for, so that one program serves both kinds of
// machine. This header is the whole contract between the program and the plugin.
#pragma once

#include <cstdint>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace plait::detail {

constexpr int kCudaPluginVersion = 2;

// All functions may throw std::exception.
struct CudaPlugin {
  int version;
  int (*device_count)();
  // Makes `index` the current device of the calling thread.
  void (*set_device)(int index);
  // A new NCCL backend over `store`; the caller owns the one reference returned. Collective over the group. high_priority: its streams go
  // before those of the computation.
  c10d::Backend* (*make_nccl)(c10d::Store* store, int rank, int size, int64_t timeout_ms, int device, bool high_priority);
};

extern "C" {
// The one symbol the plugin exports.
using CudaPluginEntry = const CudaPlugin* (*)();
}
constexpr const char* kCudaPluginSymbol = "plait_cuda_plugin";

constexpr const char* kCudaPluginFile = "libplait_cuda.so";

// What device cuda lacks here as far as files tell: "" or a reason, "the plugin ... is neither ...". Nothing is loaded or started, so a
// process may ask before it forks.
std::string missing_for_cuda();

// Loads the plugin on the first call. Throws Error(kResource) that names the missing library or the absent device.
const CudaPlugin& load_cuda_plugin();

}  // namespace plait::detail
