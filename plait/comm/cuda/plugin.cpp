// libplait_cuda.so: everything that needs CUDA or NCCL, behind the table of plait/comm/cuda_plugin.h.
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "plait/comm/cuda_plugin.h"

namespace plait::detail {
namespace {

int device_count() { return static_cast<int>(c10::cuda::device_count()); }

void set_device(int index) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(index)); }

c10d::Backend* make_nccl(c10d::Store* store, int rank, int size, int64_t timeout_ms, int device, bool high_priority) {
  auto options = c10d::ProcessGroupNCCL::Options::create(high_priority);
  options->timeout = std::chrono::milliseconds(timeout_ms);
  auto shared_store = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store);
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(shared_store, rank, size, options);
  backend->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return backend.release();
}

constexpr CudaPlugin kPlugin{kCudaPluginVersion, device_count, set_device, make_nccl};

}  // namespace
}  // namespace plait::detail

extern "C" __attribute__((visibility("default"))) const plait::detail::CudaPlugin* plait_cuda_plugin() { return &plait::detail::kPlugin; }
