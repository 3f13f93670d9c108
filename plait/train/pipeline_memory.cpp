#include "plait/train/pipeline_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "plait/base/control_groups.h"

namespace plait {

namespace {

// The same for all processes of one running machine, containers and network namespaces included.
int64_t machine_number() {
  const std::string boot = read_system_file("/proc/sys/kernel/random/boot_id");
  uint64_t hash = 1469598103934665603u;
  for (char c : boot) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return static_cast<int64_t>(hash >> 1);
}

}  // namespace

int64_t available_bytes(const std::string& root) {
  const std::string meminfo = read_system_file(root + "/proc/meminfo"), name = "MemAvailable:";
  size_t at = meminfo.find(name);
  if (at == std::string::npos) return 0;
  int64_t available = std::atoll(meminfo.c_str() + at + name.size()) * 1024;
  if (auto group = control_group_memory(root)) available = std::min(available, group->free_bytes());
  return available;
}

double free_bytes_of_rank(const Mesh& mesh, at::Device device) {
  ProcessGroup& world = mesh.world();
  at::Tensor mine = at::full({1}, machine_number(), at::TensorOptions().dtype(at::kLong)).to(device);
  at::Tensor all = mine.repeat({world.size()});
  if (world.size() > 1) world.all_gather(all, mine)->wait();
  double free_bytes = 0;
  if (device.is_cpu()) {
    auto ranks_here = static_cast<double>(all.eq(mine).sum().item<int64_t>());
    free_bytes = static_cast<double>(available_bytes("")) / ranks_here;
  } else {  // a device belongs to one rank
    free_bytes = static_cast<double>(at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  }
  at::Tensor share = at::full({1}, free_bytes, at::TensorOptions().dtype(at::kDouble)).to(device);
  world.all_reduce(share, ReduceOp::kMin)->wait();
  return share.item<double>();
}

}  // namespace plait
