// `plait doctor`: is this machine, and are these ranks, ready for a run? One process looks at its machine; several look at theirs and at
// the links between them (plait/comm/link_test.h).
#include <ATen/core/Tensor.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "apps/doctor_report.h"
#include "apps/run_command.h"
#include "apps/version.h"
#include "plait/base/error.h"
#include "plait/elastic/machine_checks.h"

namespace plait {

namespace {

// Numbers that doctor reads of its own command line; the other words are the launcher's.
struct DoctorFlags {
  MachineUse use;
  bool json = false;
  int64_t num_ranks = 1;  // of this machine, without a launcher
  bool several_nodes = false;
  MachineCheck launcher;
  std::string placement;  // what train.cpu_affinity auto does with several ranks of this machine
};

int64_t whole_number(const std::string& name, const std::string& text, int64_t least, int64_t most) {
  size_t end = 0;
  int64_t value = 0;
  try {
    value = std::stoll(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end == 0 || end != text.size() || value < least || value > most)
    throw_error(ExitCode::kUsage, "--", name, " ", text, ": must be a whole number from ", least, " to ", most);
  return value;
}

const std::vector<std::string> kOwnFlags = {"json", "work_dir", "device"};
const std::vector<std::string> kLaunchFlags = {"secret_file", "job_id",      "stop_grace",   "nproc_per_node", "nnodes",       "node_rank",
                                               "master_addr", "master_port", "rdzv_timeout", "bind",           "rdzv_endpoint"};

DoctorFlags doctor_flags(const CommandFlags& given, const std::optional<RankEnvironment>& launched) {
  auto known = kOwnFlags;
  known.insert(known.end(), kLaunchFlags.begin(), kLaunchFlags.end());
  for (const auto& [name, value] : given.settings.flags) {
    std::string near = nearest(name, known);
    throw_error(ExitCode::kUsage, "unknown flag --", name, near.empty() ? "" : "; nearest known flag: --" + near,
                " (plait doctor --help tells the flags)");
  }
  for (const auto& set : given.settings.sets) throw_error(ExitCode::kUsage, "--set ", set, ": plait doctor reads no settings");
  if (!given.settings.config_path.empty()) throw_error(ExitCode::kUsage, "--config: plait doctor reads no settings file");
  DoctorFlags flags;
  flags.json = given.value("json") == "true";
  if (auto text = given.value("json"); !text.empty() && text != "true")
    throw_error(ExitCode::kUsage, "--json ", text, ": --json takes no value");
  if (auto text = given.value("work_dir"); !text.empty()) flags.use.work_dir = text;
  if (auto text = given.value("nproc_per_node"); !text.empty())
    flags.num_ranks = text == "auto" || text == "cpu" ? std::max<int64_t>(1, ::sysconf(_SC_NPROCESSORS_ONLN))
                                                      : whole_number("nproc_per_node", text, 1, 4096);
  if (auto text = given.value("nnodes"); !text.empty()) flags.use.num_nodes = whole_number("nnodes", text, 1, 65536);
  if (auto text = given.value("master_port"); !text.empty())
    flags.use.master_port = static_cast<int>(whole_number("master_port", text, 1, 65535));
  flags.several_nodes = flags.use.num_nodes > 1;
  flags.use.ranks_per_node = flags.num_ranks;
  if (launched) {
    flags.use.ranks_per_node = launched->local_world_size;
    flags.use.num_nodes = std::max<int64_t>(1, launched->world_size / std::max<int64_t>(1, launched->local_world_size));
    flags.use.master_port = 0;  // in use by this very job
  }
  return flags;
}

MachineCheck check_torch() {
  TorchLibrary torch = torch_library();
  if (torch.version.empty()) return {"torch", CheckStatus::kWarning, "of unknown version: " + torch.path, "plait needs 2.11 or newer"};
  return {"torch", CheckStatus::kOk, cat(torch.version, " (", torch.path, ")"), ""};
}

// Asks the library itself where it can be loaded: it may be another one than that of the build.
MachineCheck check_nccl() {
  std::string plugin = cuda_plugin_path();
  if (plugin.empty())
    return {"NCCL", CheckStatus::kOk, "no CUDA plugin: ranks on CPUs talk through shared memory, across machines over Gloo", ""};
  int version = 0;
  if (void* library = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL)) {
    if (auto ask = reinterpret_cast<int (*)(int*)>(::dlsym(library, "ncclGetVersion"))) ask(&version);
  }
  std::string built = nccl_version();
  if (version > 0) built = cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  else if (!built.empty()) built += " when it was built";
  return {"NCCL", CheckStatus::kOk, cat(built.empty() ? "unknown" : built, " (", plugin, ")"), ""};
}

HostReport look_at_this_machine(const DoctorFlags& flags) {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  HostReport report{name, check_machine(flags.use)};
  for (auto& check : report.checks)
    if (check.name == "cores" && !flags.placement.empty()) check.found += "; " + flags.placement;
  report.checks.push_back(flags.launcher);
  report.checks.insert(report.checks.begin() + 4, check_gpus(flags.use, !cuda_plugin_path().empty()));
  report.checks.insert(report.checks.begin() + 5, {check_torch(), check_nccl()});
  return report;
}

// Rank 0 prints what all machines and links are; the answer is the same on all ranks.
int doctor_of_a_rank(const DoctorFlags& flags, int64_t local_rank, Mesh& mesh) {
  // One rank a machine looks at it.
  std::string own = local_rank == 0 ? to_json(look_at_this_machine(flags)).dump() : "";
  DoctorReport report;
  for (const auto& text : gather_texts(mesh.world(), own))
    if (!text.empty()) report.hosts.push_back(host_report_from_json(nlohmann::json::parse(text)));
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  report.rank_hosts = gather_texts(mesh.world(), name);
  report.links = test_links(mesh);
  add_link_checks(&report);
  if (mesh.rank() == 0) std::cout << (flags.json ? to_json(report).dump(2) + "\n" : to_text(report)) << std::flush;
  return exit_code(report);
}

// `plait doctor --nnodes ...` is `plait launch --nnodes ... -- plait doctor`: this process becomes the launcher.
[[noreturn]] void become_launcher(const CommandFlags& given, const DoctorFlags& flags) {
  std::vector<std::string> words = {"/proc/self/exe", "launch"};
  for (const auto& name : kLaunchFlags)
    if (auto value = given.value(name); !value.empty()) words.push_back(cat("--", name, "=", value));
  std::string program(4096, '\0');
  ssize_t length = ::readlink("/proc/self/exe", program.data(), program.size());
  program.resize(length > 0 ? static_cast<size_t>(length) : 0);
  words.insert(words.end(), {"--", program, "doctor"});
  if (flags.json) words.push_back("--json");
  for (const char* name : {"work_dir", "device"})
    if (auto value = given.value(name); !value.empty()) words.push_back(cat("--", name, "=", value));
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv("/proc/self/exe", argv.data());
  throw_error(ExitCode::kResource, "plait launch cannot be started");
}

}  // namespace

CommandHelp doctor_help() {
  return {
      "doctor",
      "check this machine, and the links between ranks",
      {"doctor [--work_dir DIR] [--json]", "doctor --nproc_per_node N [--json]",
       "doctor --nnodes N --node_rank K --master_addr ADDRESS --secret_file FILE [--nproc_per_node N]"},
      "Says of this machine whether a run would start and what would slow it down; each line is OK, a note, a warning or FAIL, with what "
      "to "
      "do.\n\nWith several ranks (--nproc_per_node, --nnodes on every node, or under any launcher) every machine is looked at, every pair "
      "of ranks is measured (latency, bandwidth), collectives are timed by size, and clocks are compared.\n\nExit code 0 when nothing "
      "stops a run, 8 otherwise; ranks that do not find each other end with 5.",
      {{"--work_dir", "DIR", "folder that a run will write to (default: the current one)"},
       {"--json", "", "the same as JSON"},
       {"--device", "auto | cpu | cuda", "what the ranks of the link test send from"},
       {"--nproc_per_node", "N", "test the links between N ranks of this machine, too"},
       {"--nnodes", "N", "... and of N machines: run it on each of them"},
       {"--node_rank", "K", "which of them this is"},
       {"--master_addr", "ADDRESS", "of node 0"},
       {"--master_port", "P", "where ranks meet; without --nnodes: check that it is free"},
       {"--rdzv_endpoint", "ADDRESS:P", "both in one"},
       {"--secret_file", "FILE", "secret that all nodes share (plait launch --help)"},
       {"--rdzv_timeout", "SECONDS", "how long to wait for the other nodes"},
       {"--bind", "ADDRESS", "address to listen on"}}};
}

int doctor_command(int argc, char** argv) {
  auto own = kOwnFlags;
  own.insert(own.end(), kLaunchFlags.begin(), kLaunchFlags.end());
  CommandFlags given = read_flags(argc, argv, own, /*config_argument=*/false);
  if (given.help) {
    std::cout << help_text(doctor_help());
    return 0;
  }
  RunPlace place;
  std::string problem;
  try {
    place = read_run_place(given);
  } catch (const Error& error) {  // the line "launcher" says it
    problem = error.what();
  }
  const auto& launched = place.launched;
  DoctorFlags flags = doctor_flags(given, launched);
  flags.launcher = check_launcher(launched, problem);
  RankEnvironment rank = launched.value_or(RankEnvironment{});
  if (!launched) rank.local_world_size = flags.num_ranks;
  if (rank.local_world_size > 1) flags.placement = planned_placement(Config{}, rank).reason;
  if (!launched && flags.several_nodes) become_launcher(given, flags);
  if (!launched && flags.num_ranks == 1) {
    DoctorReport report;
    report.hosts.push_back(look_at_this_machine(flags));
    std::cout << (flags.json ? to_json(report).dump(2) + "\n" : to_text(report)) << std::flush;
    return exit_code(report);
  }
  Config config;
  config.train.cpu_affinity = Affinity::kNone;  // the machine is looked at as it is
  config.train.distributed.data_parallel_size = launched ? launched->world_size : flags.num_ranks;
  if (auto device = given.value("device"); !device.empty()) {
    if (device != "auto" && device != "cpu" && device != "cuda") throw_error(ExitCode::kUsage, "--device ", device, ": auto, cpu or cuda");
    config.train.device = device;
  }
  int64_t ranks_here = flags.use.ranks_per_node;
  return run_ranks(config, place, "", nullptr, [&](Mesh& mesh, const auto&, const auto&) {
    // The ranks of a machine are neighbours, under every launcher that plait reads.
    return doctor_of_a_rank(flags, launched ? launched->local_rank : mesh.rank() % ranks_here, mesh);
  });
}

}  // namespace plait
