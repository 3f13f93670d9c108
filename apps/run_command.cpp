#include "apps/run_command.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/comm/cuda_plugin.h"
#include "plait/comm/launch.h"
#include "plait/elastic/local_launcher.h"
#include "plait/plan/layout_check.h"
#include "plait/tensor/allocator.h"
#include "plait/train/run_inputs.h"

namespace plait {

namespace {

std::string normal_name(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool looks_like_flag(const std::string& word) { return word.size() > 2 && word[0] == '-' && word[1] == '-'; }

RendezvousOptions rendezvous_options(const Config& config, const RankEnvironment& env) {
  RendezvousOptions o;
  o.rank = env.rank;
  o.world_size = env.world_size;
  o.local_rank = env.local_rank;
  o.local_world_size = env.local_world_size;
  o.master_addr = env.master_addr;
  o.master_port = env.master_port;
  o.listen = env.listen;
  o.listen_fd = env.listen_fd;
  o.timeout = std::chrono::milliseconds(static_cast<int64_t>(config.train.comm_timeout_seconds * 1000));
  o.backend = resolve_device(config) == "cuda" ? "nccl" : "gloo";
  // The torch launcher's store outlives a restart: each attempt meets under keys of its own.
  if (auto attempt = process_variable("TORCHELASTIC_RESTART_COUNT"); attempt && !env.listen) o.key_prefix = "attempt_" + *attempt;
  return o;
}

// OMP_NUM_THREADS, the launchers' way to say it, else the cores shared out over the ranks of this machine.
int threads_of_rank(int64_t local_world_size) {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    int given = std::atoi(text);
    if (given > 0) return given;
  }
  auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  return static_cast<int>(std::max<int64_t>(1, cores / std::max<int64_t>(1, local_world_size)));
}

int run_one_rank(const Config& config, const RankEnvironment& env, const RankBody& body) {
  install_caching_allocator();
  at::set_num_threads(threads_of_rank(env.local_world_size));
  auto mesh = connect_mesh(layout_of(config), rendezvous_options(config, env));
  return body(*mesh, [](const std::string& line) { log_info(line); });
}

// This process's own arguments, to start it anew.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

void settle_thread_waiting(const Config& config, bool launched) {
  if (launched || layout_of(config).world_size() != 1 || std::thread::hardware_concurrency() < 2) return;
  if (process_variable("OMP_WAIT_POLICY") || process_variable("GOMP_SPINCOUNT")) return;
  // libgomp's threads spin for milliseconds at the end of each region; where another program wants the core, that is a tenfold loss.
  // It reads the variable when it is loaded, so the program starts itself once more.
  ::setenv("GOMP_SPINCOUNT", "2000", 1);
  auto words = own_arguments();
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::cout.flush();
  if (!words.empty()) ::execv("/proc/self/exe", argv.data());
  log_warning("threads wait by spinning: the program could not start itself again");
}

}  // namespace

std::string CommandFlags::value(const std::string& name) const {
  for (const auto& [key, text] : own)
    if (key == name) return text;
  return "";
}

CommandFlags read_flags(int argc, char** argv, const std::vector<std::string>& own, bool config_argument) {
  CommandFlags flags;
  auto next_is_value = [&](int i) { return i + 1 < argc && !looks_like_flag(argv[i + 1]); };
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      flags.help = true;
      continue;
    }
    if (!looks_like_flag(word)) {
      if (!config_argument) throw_error(ExitCode::kUsage, "unexpected argument '", word, "': every input of this command is a --flag");
      if (!flags.settings.config_path.empty())
        throw_error(ExitCode::kUsage, "two settings files: ", flags.settings.config_path, " and ", word,
                    "; give one, and --set a.b=c for the rest");
      flags.settings.config_path = word;
      continue;
    }
    auto equals = word.find('=');
    std::string name = normal_name(word.substr(2, equals == std::string::npos ? std::string::npos : equals - 2));
    bool inline_value = equals != std::string::npos;
    if (name == "print_config") {
      flags.print_config = true;
      continue;
    }
    std::string value = inline_value ? word.substr(equals + 1) : next_is_value(i) ? argv[++i] : "true";
    if (name == "set") flags.settings.sets.push_back(value);
    else if (name == "config") flags.settings.config_path = value;
    else if (std::find(own.begin(), own.end(), name) != own.end()) flags.own.emplace_back(name, value);
    else flags.settings.flags.emplace_back(name, value);
  }
  return flags;
}

Config load_command_config(const CommandFlags& flags, const std::optional<RankEnvironment>& launched) {
  std::vector<std::string> notices;
  Config config = load_config(flags.settings, launched ? launched->world_size : 0, &notices);
  if (!flags.print_config) settle_thread_waiting(config, launched.has_value());
  if (!launched || launched->rank == 0)
    for (const auto& line : notices) log_info(line);
  return config;
}

std::string resolve_device(const Config& config) {
  if (config.train.device == "cpu") return "cpu";
  if (config.train.device == "cuda") {
    detail::load_cuda_plugin();
    return "cuda";
  }
  // auto: a CUDA device when the machine shows one.
  if (::access("/dev/nvidiactl", R_OK) != 0) return "cpu";
  detail::load_cuda_plugin();
  return "cuda";
}

int run_ranks(const Config& config, const std::optional<RankEnvironment>& launched, const std::string& log_dir, const RankBody& body) {
  MeshLayout layout = layout_of(config);
  int64_t world = layout.world_size();
  if (launched) check_world_size(layout, launched->world_size, config);
  if (launched || world == 1) return run_one_rank(config, launched.value_or(RankEnvironment{}), body);
  LaunchOptions options;
  options.num_ranks = world;
  options.log_dir = log_dir;
  for (int64_t r = 0; r < world; ++r) options.rank_labels.push_back(cat("rank ", r, " (", to_string(layout.coordinate_of(r)), ")"));
  options.body = [&](const RankEnvironment& env) { return run_one_rank(config, env, body); };
  return launch_local_ranks(options);
}

}  // namespace plait
