#include "plait/train/pipeline_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace plait {

namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60;

std::string small_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "max" and what is absent are no limit.
int64_t number_in(const std::string& path, int64_t otherwise) {
  std::istringstream text(small_file(path));
  int64_t value = 0;
  return text >> value ? value : otherwise;
}

// Bytes left by the narrowest control group around this process, both versions.
int64_t left_by_control_groups() {
  int64_t left = kNoLimit;
  auto take = [&](const std::string& limit_file, const std::string& used_file) {
    int64_t limit = number_in(limit_file, kNoLimit);
    if (limit < kNoLimit) left = std::min(left, std::max<int64_t>(0, limit - number_in(used_file, 0)));
  };
  std::istringstream lines(small_file("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // "0::/user.slice/x" or "4:memory:/docker/x"
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controller = line.substr(first + 1, second - first - 1);
    if (!controller.empty() && controller != "memory") continue;
    const std::string root = controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string at = line.substr(second + 1);
    while (true) {  // up to the root, which in a container is often the group itself
      std::string folder = root + (at.size() > 1 ? at : "");
      if (controller.empty()) take(folder + "/memory.max", folder + "/memory.current");
      else take(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes");
      if (at.size() <= 1) break;
      at = at.substr(0, at.rfind('/'));
    }
  }
  return left;
}

// The same for all processes of one running machine, containers and network namespaces included.
int64_t machine_number() {
  const std::string boot = small_file("/proc/sys/kernel/random/boot_id");
  uint64_t hash = 1469598103934665603u;
  for (char c : boot) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return static_cast<int64_t>(hash >> 1);
}

}  // namespace

int64_t available_bytes(const std::string& meminfo, int64_t left_by_groups) {
  const std::string name = "MemAvailable:";
  size_t at = meminfo.find(name);
  if (at == std::string::npos) return 0;
  return std::min<int64_t>(std::atoll(meminfo.c_str() + at + name.size()) * 1024, left_by_groups);
}

double free_bytes_of_rank(const Mesh& mesh, at::Device device) {
  ProcessGroup& world = mesh.world();
  at::Tensor mine = at::full({1}, machine_number(), at::TensorOptions().dtype(at::kLong)).to(device);
  at::Tensor all = mine.repeat({world.size()});
  if (world.size() > 1) world.all_gather(all, mine)->wait();
  double free_bytes = 0;
  if (device.is_cpu()) {
    auto ranks_here = static_cast<double>(all.eq(mine).sum().item<int64_t>());
    free_bytes = static_cast<double>(available_bytes(small_file("/proc/meminfo"), left_by_control_groups())) / ranks_here;
  } else {  // a device belongs to one rank
    free_bytes = static_cast<double>(at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  }
  at::Tensor share = at::full({1}, free_bytes, at::TensorOptions().dtype(at::kDouble)).to(device);
  world.all_reduce(share, ReduceOp::kMin)->wait();
  return share.item<double>();
}

}  // namespace plait
