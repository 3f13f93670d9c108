#include "plait/base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace plait {

namespace {

std::optional<int64_t> read_number(const std::string& path) {
  std::istringstream text(read_system_file(path));
  int64_t value = 0;
  return text >> value ? std::optional(value) : std::nullopt;  // "max" is none
}

// The number behind `name` in lines "name number"; 0 when there is none.
int64_t field_of(const std::string& path, const std::string& name) {
  std::istringstream words(read_system_file(path));
  int64_t value = 0;
  for (std::string word; words >> word >> value;)
    if (word == name) return value;
  return 0;
}

// Folders of a hierarchy from this process's own group up to the root. `controller`: "" = version 2.
std::vector<std::string> group_folders(const std::string& root, const std::string& controller) {
  std::string base = controller.empty() ? root + "/sys/fs/cgroup" : root + "/sys/fs/cgroup/" + controller, own = "/";
  std::istringstream lines(read_system_file(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // "0::/user.slice/x" or "4:cpu,cpuacct:/docker/x"
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controller.empty() ? names == ",," : names.find("," + controller + ",") != std::string::npos) own = line.substr(second + 1);
  }
  std::vector<std::string> folders;
  for (std::string at = own; at.size() > 1; at = at.substr(0, at.rfind('/'))) folders.push_back(base + at);
  folders.push_back(base);
  return folders;
}

}  // namespace

std::string read_system_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  while (!all.empty() && (all.back() == '\n' || all.back() == ' ')) all.pop_back();
  return all;
}

std::optional<double> control_group_cores(const std::string& root) {
  std::optional<double> least;
  auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = least ? std::min(*least, quota / period) : quota / period;
  };
  for (const auto& folder : group_folders(root, "")) {
    std::istringstream text(read_system_file(folder + "/cpu.max"));
    double quota = 0, period = 0;
    if (text >> quota >> period) take(quota, period);  // "max 100000" is no number
  }
  for (const auto& folder : group_folders(root, "cpu")) {
    auto quota = read_number(folder + "/cpu.cfs_quota_us"), period = read_number(folder + "/cpu.cfs_period_us");
    if (quota && period) take(static_cast<double>(*quota), static_cast<double>(*period));
  }
  return least;
}

std::optional<ControlGroupMemory> control_group_memory(const std::string& root) {
  std::optional<ControlGroupMemory> least;
  auto take = [&](const std::string& folder, const char* limit_file, const char* used_file, const char* idle_cache) {
    constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 writes about 2^63 for "none"
    const auto limit = read_number(folder + limit_file);
    if (!limit || *limit <= 0 || *limit >= kNoLimit) return;
    const int64_t charged = read_number(folder + used_file).value_or(0);
    const ControlGroupMemory group{*limit, std::max<int64_t>(0, charged - field_of(folder + "/memory.stat", idle_cache))};
    if (!least || group.limit_bytes - group.used_bytes < least->limit_bytes - least->used_bytes) least = group;
  };
  for (const auto& folder : group_folders(root, "")) take(folder, "/memory.max", "/memory.current", "inactive_file");
  for (const auto& folder : group_folders(root, "memory"))
    take(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
  return least;
}

std::optional<int64_t> control_group_processes(const std::string& root) {
  std::optional<int64_t> least;
  for (const auto& folder : group_folders(root, ""))
    if (auto most = read_number(folder + "/pids.max"); most && (!least || *most < *least)) least = most;
  return least;
}

}  // namespace plait
