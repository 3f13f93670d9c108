// What can be known about this machine before a run: cores, memory, descriptors, network, clock, folders. Each check looks, says what it
// found, and how to mend it. No check changes anything but check_work_dir (one temporary file) and check_ports (a socket, closed at once).
// Files of /proc and /sys are read below `root`, so that tests can show them a machine of their own. No torch; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/elastic/environment.h"

namespace plait {

enum class CheckStatus { kOk, kNote, kWarning, kFail };  // kNote: cannot be known from here, and what to try. kFail: it stops a run
const char* check_word(CheckStatus status);              // "OK", "note", "warning", "FAIL"

struct MachineCheck {
  std::string name;  // "cores"
  CheckStatus status = CheckStatus::kOk;
  std::string found;   // one line
  std::string remedy;  // empty when there is nothing to mend
};

// What of the machine a rank is going to use.
struct MachineUse {
  std::string root;            // before /proc, /sys and /dev; "" = this machine
  std::string work_dir = ".";  // folder of the run
  int master_port = 0;         // 0 = none chosen
  int64_t num_nodes = 1;
  int64_t ranks_per_node = 1;
};

MachineCheck check_cores(const MachineUse& use);
MachineCheck check_memory(const MachineUse& use);
MachineCheck check_shared_memory(const MachineUse& use);
MachineCheck check_huge_pages(const MachineUse& use);
// GPUs that the driver shows; `has_plugin`: this program can use them.
MachineCheck check_gpus(const MachineUse& use, bool has_plugin);
MachineCheck check_network(const MachineUse& use);
MachineCheck check_host_name(const MachineUse& use);
MachineCheck check_ports(const MachineUse& use);
MachineCheck check_firewall(const MachineUse& use);
MachineCheck check_work_dir(const MachineUse& use);
MachineCheck check_clock(const MachineUse& use);
MachineCheck check_descriptors(const MachineUse& use);
MachineCheck check_processes(const MachineUse& use);
// `problem`: what was wrong with the launcher's variables, else "". (They can be read only once: descriptors are among them.)
MachineCheck check_launcher(const std::optional<RankEnvironment>& launched, const std::string& problem);

// All of the above but the GPUs and the launcher, in the order they are shown.
std::vector<MachineCheck> check_machine(const MachineUse& use);

CheckStatus worst(const std::vector<MachineCheck>& checks);

// "12.5 GiB", "512 MiB", "900 bytes".
std::string bytes_text(int64_t bytes);

namespace detail {
// "ext4", "nfs", "0x1234" of a statfs f_type; `shared`: such a file system is usually seen by several machines.
std::string file_system_name(uint64_t type, bool* shared);
}  // namespace detail

}  // namespace plait
