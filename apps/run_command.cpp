#include "apps/run_command.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
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
#include "plait/comm/mpi_plugin.h"
#include "plait/elastic/cpu_placement.h"
#include "plait/elastic/local_launcher.h"
#include "plait/elastic/pet_environment.h"
#include "plait/elastic/plait_variables.h"
#include "plait/plan/layout_check.h"
#include "plait/rendezvous/hello.h"
#include "plait/rendezvous/secret.h"
#include "plait/tensor/allocator.h"
#include "plait/train/input_contents.h"

namespace plait {

namespace {

std::string normal_name(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool looks_like_flag(const std::string& word) { return word.size() > 2 && word[0] == '-' && word[1] == '-'; }

constexpr const char* kPlaceFlags[] = {"bind", "job_id", "rdzv_timeout", "stop_grace"};

// A path that came out empty is mostly a shell variable that is not set; the run would then write to / or take what is in the settings file.
void refuse_empty_paths(const CommandLine& command) {
  constexpr const char* kPaths[] = {"work_dir",   "train.work_dir",     "output_dir",         "model",     "model.path",     "train_file",
                                    "valid_file", "dataset.train.file", "dataset.valid.file", "head_init", "model.head_init"};
  auto check = [&](const std::string& shown, const std::string& name, const std::string& value) {
    if (value.empty() && std::find(std::begin(kPaths), std::end(kPaths), normal_name(name)) != std::end(kPaths))
      throw_error(ExitCode::kUsage, shown, " is empty (an unset shell variable?); name a file or folder, or leave it out");
  };
  for (const auto& [name, value] : command.flags) check("--" + name, name, value);
  for (const auto& set : command.sets) {
    auto equals = std::min(set.find('='), set.size());
    if (equals < set.size()) check("--set " + set, set.substr(0, equals), set.substr(equals + 1));
  }
}

// cpu | cuda, as far as files tell: auto is cuda when the machine shows a device.
std::string planned_device(const Config& config) {
  if (config.train.device != "auto") return config.train.device;
  return ::access("/dev/nvidiactl", R_OK) == 0 ? "cuda" : "cpu";
}

// Before any file is read and without starting CUDA, which ranks that are forked later could then not use. (Settings that contradict each
// other on every machine were refused when they were read.)
void refuse_absent_device(const Config& config) {
  const std::string &wish = config.train.comm.backend, &device = config.train.device, where = config.where("train.comm.backend");
  const bool cuda = planned_device(config) == "cuda";
  if (cuda && wish != "auto" && wish != "nccl")
    throw_error(
        ExitCode::kUsage, "train.comm.backend ", wish, where,
        " does not carry tensors of device cuda, which train.device auto is on this machine; nearest valid value nccl, or device cpu");
  if (!cuda && wish != "nccl") return;
  const std::string missing = detail::missing_for_cuda();
  if (!cuda)
    throw_error(ExitCode::kResource, "train.comm.backend nccl", where, " needs a CUDA device: ",
                missing.empty() ? "/dev/nvidiactl cannot be read; nearest valid value auto, or train.device cuda"
                                : cat(missing, "; nearest valid value auto"));
  if (!missing.empty())
    throw_error(
        ExitCode::kResource,
        device == "cuda" ? cat("train.device cuda", config.where("train.device"), ": ") : "train.device auto is cuda on this machine, but ",
        missing, "; nearest valid value cpu", wish == "nccl" ? cat(", with train.comm.backend auto instead of nccl", where) : "");
}

// auto | shm | gloo | nccl | mpi -> what carries the messages of this run's device.
std::string resolve_backend(const Config& config) {
  refuse_absent_device(config);
  return resolve_device(config) == "cuda" ? "nccl" : config.train.comm.backend;
}

// Before any file is read: ranks that no MPI launcher started cannot meet over MPI.
void refuse_mpi_without_launcher(const Config& config, const RunPlace& place) {
  if (config.train.comm.backend != "mpi" || layout_of(config).world_size() == 1) return;
  const std::string launcher = place.launched ? place.launched->launcher : "plait itself";
  const bool starts_mpi = launcher == "OpenMPI" || launcher == "MPICH" || launcher == "Slurm";
  if (!starts_mpi || detail::mpi_plugin_of_launcher().empty())
    throw_error(ExitCode::kUsage, "train.comm.backend mpi", config.where("train.comm.backend"),
                " needs ranks that an MPI launcher starts (mpirun -n ", layout_of(config).world_size(),
                " plait train ..., or srun --mpi=pmix); here ", launcher, " starts them; nearest valid value auto");
  detail::mpi_plugin_path();
}

RendezvousOptions rendezvous_options(const Config& config, const RankEnvironment& env) {
  RendezvousOptions o;
  o.rank = env.rank;
  o.world_size = env.world_size;
  o.local_rank = env.local_rank;
  o.local_world_size = env.local_world_size;
  o.master_addr = env.master_addr;
  o.master_port = env.master_port;
  o.foreign_store = env.foreign_store;
  o.listen = env.listen;
  o.listen_fd = env.listen_fd;
  o.bind = env.bind;
  o.job_id = env.job_id;
  o.secret = env.secret;
  o.config_text = print_config(config);
  o.rendezvous_timeout = env.rendezvous_timeout;
  o.timeout = std::chrono::milliseconds(static_cast<int64_t>(config.train.comm_timeout_seconds * 1000));
  o.backend = resolve_backend(config);
  if (config.train.comm.priority.tensor_parallel == CommStyle::kP2P) o.urgent_groups.push_back("tensor");
  if (config.train.comm.priority.data_parallel == CommStyle::kP2P) o.urgent_groups.push_back("data");
  // The torch launcher's store outlives a restart: each attempt meets under keys of its own.
  if (env.foreign_store && env.restart_count > 0) o.key_prefix = cat("attempt_", env.restart_count);
  return o;
}

std::chrono::milliseconds seconds_flag(const std::string& name, const std::string& text) {
  double seconds = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  constexpr double kWeek = 7 * 24 * 3600;
  if (error != std::errc() || end != text.data() + text.size() || !(seconds > 0 && seconds <= kWeek))
    throw_error(ExitCode::kUsage, name, " ", text, ": must be a number of seconds above 0, at most ", kWeek);
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000 + 0.5));
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

// Torch's pool waits for ever for a thread that could not be started; std::jthread throws.
void try_threads(int count) {
  std::vector<std::jthread> trial;
  for (int i = 1; i < count; ++i) trial.emplace_back([] {});
}

// `inputs`: to compare with the other ranks'; null for forked ranks, which share what one process has read.
int run_one_rank(const Config& config, const RankEnvironment& env, RankWatch& watch, bool tells_placement, const RunInputs* inputs,
                 const RankBody& body) {
  RunControl control = watch.control();
  MeshLayout layout = layout_of(config);
  Coordinate place = layout.coordinate_of(env.rank);
  control.status->set_coordinate(place.dp, place.pp, place.tp);
  control.enter(RankPhase::kConnect);
  install_caching_allocator();
  const int num_threads = threads_of_rank(env.local_world_size);
  // Before torch's pool exists: its threads take over where this one may run.
  CpuPlacement placement = pin_rank(config.train.cpu_affinity, env, num_threads);
  if (tells_placement && !placement.cores.empty() && env.rank == 0) log_info(placement.reason + " (train.cpu_affinity)");
  try_threads(num_threads);
  at::set_num_threads(num_threads);
  RendezvousOptions options = rendezvous_options(config, env);
  if (inputs && env.world_size > 1)
    for (const auto& input : input_contents(*inputs))
      options.config_text += rendezvous::contents_line(input.name, input.digest, input.path);
  auto mesh = connect_mesh(layout, options);
  control.enter(RankPhase::kLoad);
  int code = body(
      *mesh, [](const std::string& line) { log_info(line); }, control);
  control.enter(RankPhase::kEnd);
  return code;
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
  auto take_file = [&](const std::string& path) {
    if (!flags.settings.config_path.empty())
      throw_error(ExitCode::kUsage, "two settings files: ", flags.settings.config_path, " and ", path,
                  "; give one, and --set a.b=c for the rest");
    flags.settings.config_path = path;
  };
  auto next_is_value = [&](int i) { return i + 1 < argc && !looks_like_flag(argv[i + 1]); };
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      flags.help = true;
      continue;
    }
    if (!looks_like_flag(word)) {
      if (word[0] == '-')
        throw_error(ExitCode::kUsage, "unknown flag ", word, "; flags have two dashes and a name, as --lr; -h shows the help");
      if (!config_argument) throw_error(ExitCode::kUsage, "unexpected argument '", word, "': every input of this command is a --flag");
      take_file(word);
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
    else if (name == "config") take_file(value);
    else if (std::find(own.begin(), own.end(), name) != own.end() ||
             std::find(std::begin(kPlaceFlags), std::end(kPlaceFlags), name) != std::end(kPlaceFlags))
      flags.own.emplace_back(name, value);
    else flags.settings.flags.emplace_back(name, value);
    if (value.empty() && (name == "data" || name == "output" || name == "logits" || name == "config"))
      throw_error(ExitCode::kUsage, "--", name, " is empty (an unset shell variable?); name a file");
  }
  return flags;
}

RunPlace read_run_place(const CommandFlags& flags) {
  RunPlace place;
  place.launched = read_launcher_environment();
  if (!place.launched) read_plait_variables(process_variable, &place.wishes);
  RankEnvironment& env = place.launched ? *place.launched : place.wishes;
  if (auto text = flags.value("bind"); !text.empty()) env.bind = text;
  if (auto text = flags.value("job_id"); !text.empty()) env.job_id = text;
  if (auto text = flags.value("rdzv_timeout"); !text.empty()) env.rendezvous_timeout = seconds_flag("--rdzv_timeout", text);
  if (auto text = process_variable("PLAIT_STOP_GRACE"); text && !text->empty())
    place.stop_grace = seconds_flag("the environment variable PLAIT_STOP_GRACE", *text);
  if (auto text = flags.value("stop_grace"); !text.empty()) place.stop_grace = seconds_flag("--stop_grace", text);
  if (place.launched && !flags.value("stop_grace").empty())
    place.launched->notices.push_back(
        cat("--stop_grace has no effect on a rank: it is a flag of what starts the ranks, here ", place.launched->launcher));
  if (place.launched) place.watch = std::make_unique<RankWatch>(*place.launched);
  return place;
}

namespace {

// Under Kubeflow, settings that do not fit the pods may fit ranks of which several run in a pod: the message then says how to start those.
Config load_launched_config(const CommandFlags& flags, const RunPlace& place, std::vector<std::string>* notices) {
  if (!place.launched) return load_config(flags.settings, 0, notices);
  std::optional<int64_t> asked;
  try {
    return load_config(flags.settings, place.launched->world_size, notices);
  } catch (const Error&) {
    if (!place.launched->one_rank_a_node) throw;
    try {
      asked = layout_of(load_config(flags.settings, 0, nullptr)).world_size();
    } catch (const Error&) {  // wrong in itself
    }
    if (asked) check_ranks_of_pods(*place.launched, *asked);
    throw;
  }
}

}  // namespace

Config load_command_config(const CommandFlags& flags, const RunPlace& place) {
  refuse_empty_paths(flags.settings);
  std::vector<std::string> notices;
  if (place.launched) notices = place.launched->notices;
  Config config = load_launched_config(flags, place, &notices);
  if (!flags.print_config) {
    refuse_absent_device(config);
    refuse_mpi_without_launcher(config, place);
    settle_thread_waiting(config, place.launched.has_value());
  }
  if (place.talks())
    for (const auto& line : notices) log_info(line);
  return config;
}

void refuse_crowd(const Config& config, const RunPlace& place) {
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency()), most = 4 * cores + 16;
  const auto& d = config.train.distributed;
  const int64_t world = layout_of(config).world_size();
  if (place.launched || world <= most) return;
  throw_error(ExitCode::kResource, "data_parallel_size ", d.data_parallel_size, config.where("train.distributed.data_parallel_size"),
              " x model_parallel_size ", d.model_parallel_size, config.where("train.distributed.model_parallel_size"),
              " x pipeline_parallel_size ", d.pipeline_parallel_size, config.where("train.distributed.pipeline_parallel_size"), " = ",
              world, " ranks on this machine, which has ", cores, " cores: more than ", most,
              " are not started without being asked for; if they are meant: plait launch --nproc_per_node ", world, " -- plait train ...");
}

CpuPlacement planned_placement(const Config& config, const RankEnvironment& env) {
  return plan_placement(config.train.cpu_affinity, env, threads_of_rank(env.local_world_size));
}

std::string resolve_device(const Config& config) {
  const std::string device = planned_device(config);
  if (device == "cuda") detail::load_cuda_plugin();
  return device;
}

void before_meeting(const Config& config, const RunPlace& place, const std::function<void()>& prepare) {
  try {
    prepare();
  } catch (const Error& error) {
    if (place.launched && place.launched->rank == 0) tell_failure(rendezvous_options(config, *place.launched), error);
    throw;
  }
}

int run_ranks(const Config& config, RunPlace& place, const std::string& log_dir, const RunInputs* inputs, const RankBody& body) {
  MeshLayout layout = layout_of(config);
  int64_t world = layout.world_size();
  refuse_crowd(config, place);
  if (place.launched) check_world_size(layout, place.launched->world_size, config);
  if (place.launched || world == 1) {
    RankEnvironment env = place.launched.value_or(RankEnvironment{});
    if (!place.watch) place.watch = std::make_unique<RankWatch>(env);
    return run_one_rank(config, env, *place.watch, place.tells_placement, inputs, body);
  }
  LaunchOptions options;
  options.num_ranks = world;
  options.log_dir = log_dir;
  options.layout = layout;
  options.bind = place.wishes.bind;
  options.job_id = place.wishes.job_id;
  options.secret = place.wishes.secret.empty() ? rendezvous::make_secret() : place.wishes.secret;
  options.rendezvous_timeout = place.wishes.rendezvous_timeout;
  options.stop_grace = place.stop_grace;
  options.body = [&](const RankEnvironment& env) {
    RankWatch watch(env);
    return run_one_rank(config, env, watch, place.tells_placement, nullptr, body);
  };
  return launch_local_ranks(options);
}

}  // namespace plait
