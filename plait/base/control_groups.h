// Limits that the control groups (cgroups) around this process set, versions 1 and 2, every level from its own group up to the root: in a
// container the hierarchy is often mounted at its own place. Files of /proc and /sys are read below `root` ("" = this machine), so that
// tests can show a machine of their own. What cannot be read is no limit. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plait {

// CPUs whose time they allow, none = no quota (cpu.max; cpu.cfs_quota_us).
std::optional<double> control_group_cores(const std::string& root);

// Bytes of the group that leaves least, none = no limit. `used` is without pages of files that nobody used of late: the kernel gives those
// back before it refuses memory, as MemAvailable counts them free.
struct ControlGroupMemory {
  int64_t limit_bytes = 0, used_bytes = 0;
  int64_t free_bytes() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
};
std::optional<ControlGroupMemory> control_group_memory(const std::string& root);

// Processes and threads they allow, none = no limit (pids.max of version 2).
std::optional<int64_t> control_group_processes(const std::string& root);

// A file of /proc or /sys without what is blank at its end; "" when it cannot be read.
std::string read_system_file(const std::string& path);

}  // namespace plait
