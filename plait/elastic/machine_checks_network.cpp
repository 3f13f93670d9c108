// Checks of the network, of ports and of the folder of the run.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "plait/base/error.h"
#include "plait/base/file_descriptor.h"
#include "plait/base/text.h"
#include "plait/elastic/machine_checks.h"

namespace plait {

namespace {

constexpr int kUsualPort = 29500;  // of torchrun and of plait launch

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string address_text(const sockaddr* address) {
  char buffer[INET6_ADDRSTRLEN] = "";
  const void* bytes = address->sa_family == AF_INET ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                                                    : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  ::inet_ntop(address->sa_family, bytes, buffer, sizeof buffer);
  return buffer;
}

// 0 or the errno of a socket that listens at `port` of all addresses. An IPv4 socket where there is no IPv6.
int try_listen(int port) {
  for (int family : {AF_INET6, AF_INET}) {
    FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) continue;
    int yes = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(port));
    const sockaddr* address = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
    socklen_t size = family == AF_INET6 ? sizeof six : sizeof four;
    if (::bind(socket.get(), address, size) != 0) {
      if (errno == EADDRNOTAVAIL && family == AF_INET6) continue;
      return errno;
    }
    return ::listen(socket.get(), 1) == 0 ? 0 : errno;
  }
  return EAFNOSUPPORT;
}

}  // namespace

MachineCheck check_network(const MachineUse& use) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {"network", CheckStatus::kNote, "the interfaces cannot be listed", "look with ip addr"};
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<std::string> found;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    if (!at->ifa_addr || (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6)) continue;
    if (!(at->ifa_flags & IFF_UP) || is_loopback(at->ifa_addr) || is_link_local(at->ifa_addr)) continue;
    found.push_back(cat(at->ifa_name, " ", address_text(at->ifa_addr)));
  }
  if (!found.empty()) return {"network", CheckStatus::kOk, cat(join(found), ": addresses that other nodes may reach"), ""};
  return {"network", use.num_nodes > 1 ? CheckStatus::kFail : CheckStatus::kWarning, "no interface but loopback",
          "ranks on one machine need no other; for several, bring an interface up (ip link, ip addr), or start the container with "
          "--network host"};
}

MachineCheck check_host_name(const MachineUse& use) {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  int answer = ::getaddrinfo(name, nullptr, &hints, &list);
  const std::string remedy =
      use.num_nodes > 1 ? "give --master_addr an address of the line 'network', not this name"
                        : "only matters with several nodes: use an address of the line 'network' as --master_addr, or mend /etc/hosts";
  if (answer != 0) return {"host name", CheckStatus::kWarning, cat(name, " does not resolve (", ::gai_strerror(answer), ")"), remedy};
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> addresses;
  bool reachable = false;
  for (const addrinfo* at = list; at; at = at->ai_next) {
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    addresses.push_back(address_text(at->ai_addr));
    reachable = reachable || !is_loopback(at->ai_addr);
  }
  if (reachable) return {"host name", CheckStatus::kOk, cat(name, " is ", join(addresses)), ""};
  return {"host name", CheckStatus::kWarning, cat(name, " is only ", join(addresses), ", which other nodes cannot reach"), remedy};
}

MachineCheck check_ports(const MachineUse& use) {
  if (int error = try_listen(0); error != 0)
    return {"ports", CheckStatus::kFail, cat("no port can be listened on: ", std::strerror(error)),
            "ranks cannot meet: see the limits of the container or of seccomp"};
  int port = use.master_port != 0 ? use.master_port : kUsualPort;
  int error = try_listen(port);
  if (error == 0) return {"ports", CheckStatus::kOk, cat("any free one, and ", port), ""};
  if (use.master_port == 0)
    return {"ports", CheckStatus::kNote, cat("any free one; ", port, ", the usual --master_port, cannot be used: ", std::strerror(error)),
            "with several nodes choose another --master_port"};
  return {"ports", CheckStatus::kFail, cat("--master_port ", port, " cannot be listened on: ", std::strerror(error)),
          error == EACCES ? "ports below 1024 need privileges: choose one above"
                          : cat("another program has it (ss -ltnp 'sport = :", port, "'): end it, or choose another --master_port")};
}

MachineCheck check_firewall(const MachineUse& use) {
  return {"firewall", CheckStatus::kNote, "cannot be seen from one machine: ranks connect to each other on any port above 1024",
          use.num_nodes > 1 ? "the test of the pairs below tells"
                            : "with several nodes run plait doctor --nnodes N --node_rank K --master_addr ADDRESS on each of them"};
}

std::string detail::file_system_name(uint64_t type, bool* shared) {
  struct Known {
    uint64_t type;
    const char* name;
    bool shared;
  };
  constexpr Known kKnown[] = {
      {0xEF53, "ext4", false},        {0x58465342, "xfs", false},   {0x9123683E, "btrfs", false}, {0x794C7630, "overlay", false},
      {0x01021994, "tmpfs", false},   {0x2FC12FC1, "zfs", false},   {0xF2F52010, "f2fs", false},  {0x6969, "nfs", true},
      {0xFF534D42, "cifs", true},     {0xFE534D42, "smb2", true},   {0x0BD00BD0, "lustre", true}, {0x00C36400, "ceph", true},
      {0x47504653, "gpfs", true},     {0x19830326, "beegfs", true}, {0x65735546, "fuse", true},   {0x01021997, "9p", true},
      {0x20030528, "orangefs", true}, {0x73757245, "coda", true},   {0x5346414F, "afs", true},    {0x6A656A63, "virtiofs", true}};
  for (const auto& known : kKnown)
    if (known.type == type) {
      *shared = known.shared;
      return known.name;
    }
  *shared = false;
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "type 0x%lx", static_cast<unsigned long>(type));
  return buffer;
}

MachineCheck check_work_dir(const MachineUse& use) {
  namespace fs = std::filesystem;
  std::error_code error;
  // The run makes the folder: what counts is the nearest one that is there.
  fs::path folder = fs::absolute(use.work_dir.empty() ? "." : use.work_dir, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const fs::path wanted = folder;
  while (!fs::exists(folder, error) && folder.has_parent_path() && folder != folder.parent_path()) folder = folder.parent_path();
  std::string shown = folder.string();
  if (!fs::is_directory(folder, error)) return {"work_dir", CheckStatus::kFail, shown + " is no folder", "choose another --work_dir"};
  std::string probe = (folder / ".plait-doctor-XXXXXX").string();
  int file = ::mkstemp(probe.data());
  if (file < 0)
    return {"work_dir", CheckStatus::kFail, cat(shown, " cannot be written: ", std::strerror(errno)),
            "choose another --work_dir, or mend its permissions"};
  ::close(file);
  ::unlink(probe.c_str());
  struct statfs info {};
  if (::statfs(shown.c_str(), &info) != 0) return {"work_dir", CheckStatus::kNote, shown + " is writable", ""};
  bool shared = false;
  std::string type = detail::file_system_name(static_cast<uint64_t>(info.f_type) & 0xFFFFFFFFu, &shared);
  auto bytes = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_bsize);
  MachineCheck check{"work_dir", CheckStatus::kOk, cat(shown, " is writable, ", bytes_text(bytes), " free, ", type), ""};
  if (folder != wanted) check.found = cat(wanted.string(), " is not there yet and would be made; ", check.found);
  if (bytes < (int64_t{1} << 26)) {
    check.status = CheckStatus::kFail;
    check.remedy = "no run fits: free some space, or choose another --work_dir";
  } else if (bytes < (int64_t{1} << 30)) {
    check.status = CheckStatus::kWarning;
    check.remedy = "weights are written twice (last and best), 4 bytes a parameter each: free some space, or choose another --work_dir";
  } else if (use.num_nodes > 1 && !shared) {
    check.status = CheckStatus::kWarning;
    check.remedy =
        "this looks like a local disk: all nodes must see one and the same folder (NFS, Lustre, ...), or the files lie where rank 0 runs";
  } else if (folder != wanted && folder != wanted.parent_path()) {
    check.status = CheckStatus::kWarning;
    check.remedy = cat(wanted.parent_path().string(), " is not there either: look whether the path is meant so");
  }
  return check;
}

}  // namespace plait
