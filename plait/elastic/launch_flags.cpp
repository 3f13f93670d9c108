#include "plait/elastic/launch_flags.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <thread>

#include "plait/base/text.h"
#include "plait/elastic/master_socket.h"

namespace plait {

namespace {

enum class Kind { kValue, kSwitch, kIgnored, kIgnoredSwitch, kRefused };

struct Flag {
  const char* name;
  Kind kind;
  const char* why = "";  // ignored or refused
};

constexpr const char* kNoElastic = "workers are watched without polling, nothing is to be set";
constexpr const char* kOneRendezvous = "plait has one rendezvous of its own";
constexpr Flag kFlags[] = {
    {"nproc_per_node", Kind::kValue},
    {"nnodes", Kind::kValue},
    {"node_rank", Kind::kValue},
    {"master_addr", Kind::kValue},
    {"master_port", Kind::kValue},
    {"rdzv_endpoint", Kind::kValue},
    {"rdzv_timeout", Kind::kValue},
    {"rdzv_id", Kind::kValue},
    {"job_id", Kind::kValue},
    {"standalone", Kind::kSwitch},
    {"max_restarts", Kind::kValue},
    {"log_dir", Kind::kValue},
    {"redirects", Kind::kValue},
    {"tee", Kind::kValue},
    {"bind", Kind::kValue},
    {"secret_file", Kind::kValue},
    {"stop_grace", Kind::kValue},
    {"module", Kind::kSwitch},
    {"no_python", Kind::kSwitch},
    {"help", Kind::kSwitch},
    {"monitor_interval", Kind::kIgnored, kNoElastic},
    {"start_method", Kind::kIgnored, "workers are programs of their own"},
    {"rdzv_backend", Kind::kIgnored, kOneRendezvous},
    {"rdzv_conf", Kind::kIgnored, kOneRendezvous},
    {"role", Kind::kIgnored, "there is one role"},
    {"event_log_handler", Kind::kIgnored, "there are no event logs"},
    {"use_env", Kind::kIgnoredSwitch, "the local rank is always in LOCAL_RANK"},
    {"local_addr", Kind::kRefused, "--bind ADDRESS names the address that the rendezvous listens on"},
    {"run_path", Kind::kRefused, "name the interpreter and the file"},
    {"local_ranks_filter", Kind::kRefused, "--tee \"0:3,1:3\" chooses the ranks that are shown"},
    {"logs_specs", Kind::kRefused, "--log_dir, --redirects and --tee choose the logs"},
    {"signals_to_handle", Kind::kRefused, "SIGINT, SIGTERM and SIGHUP are handled"},
    {"virtual_local_rank", Kind::kRefused, "plait takes the device of LOCAL_RANK"},
    {"numa_binding", Kind::kRefused, "start the program through numactl"},
};

bool is_ipv6(const std::string& text) {
  in6_addr address;
  const size_t zone = text.find('%');  // fe80::1%eth0
  return ::inet_pton(AF_INET6, text.substr(0, zone).c_str(), &address) == 1;
}

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const Flag& find_flag(const std::string& word, const std::string& name) {
  for (const Flag& flag : kFlags)
    if (name == flag.name) {
      if (flag.kind == Kind::kRefused) throw_error(ExitCode::kUsage, "launch: ", word, ": plait launch does not have it; ", flag.why);
      return flag;
    }
  std::vector<std::string> known;
  for (const Flag& flag : kFlags)
    if (flag.kind == Kind::kValue || flag.kind == Kind::kSwitch) known.push_back(flag.name);
  std::string near = nearest(name, known);
  for (size_t i = 0; near.empty() && i < known.size(); ++i)
    if (known[i].starts_with(name)) near = known[i];  // --nproc
  throw_error(ExitCode::kUsage, "launch: unknown flag ", word, near.empty() ? "" : cat("; nearest known flag: --", near),
              "; flags of the program come after its name (plait launch --help)");
}

// Flags as given, by name, with the word for messages.
struct GivenFlag {
  std::string text, origin;
};
using GivenFlags = std::map<std::string, GivenFlag>;

GivenFlags split_words(const std::vector<std::string>& words, LaunchCommand* command) {
  const std::map<std::string, std::string> kShort = {{"-h", "help"}, {"-m", "module"}, {"-r", "redirects"}, {"-t", "tee"}};
  GivenFlags given;
  size_t i = 0;
  for (; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      ++i;
      break;
    }
    auto brief = kShort.find(word);
    if (!word.starts_with("-") || word == "-") break;
    if (brief == kShort.end() && !word.starts_with("--"))
      throw_error(ExitCode::kUsage, "launch: unknown flag ", word, "; flags are --name value (plait launch --help)");
    const size_t equals = word.find('=');
    const std::string shown = word.substr(0, equals);
    const std::string name = brief != kShort.end() ? brief->second : underscored(shown.substr(2));
    const Flag& flag = find_flag(shown, name);
    const bool is_switch = flag.kind == Kind::kSwitch || flag.kind == Kind::kIgnoredSwitch;
    if (is_switch && equals != std::string::npos) throw_error(ExitCode::kUsage, "launch: ", shown, " takes no value (", word, ")");
    std::string text = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (!is_switch && equals == std::string::npos) {
      if (i + 1 >= words.size() || words[i + 1] == "--") throw_error(ExitCode::kUsage, "launch: ", shown, " has no value");
      text = words[++i];
    }
    if (!is_switch && text.empty()) throw_error(ExitCode::kUsage, "launch: ", shown, " has an empty value");
    if (flag.kind == Kind::kIgnored || flag.kind == Kind::kIgnoredSwitch)
      command->notices.push_back(cat(shown, " has no effect: ", flag.why));
    else given[name] = {text, shown};
  }
  command->program.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())), words.end());
  return given;
}

// What plait's and torchrun's variables say for flags that were not given.
void add_variables(const Variable& variable, LaunchCommand* command, GivenFlags* given) {
  for (auto [flag, name] : {std::pair{"bind", "PLAIT_BIND"},
                            {"job_id", "PLAIT_JOB_ID"},
                            {"rdzv_timeout", "PLAIT_RDZV_TIMEOUT"},
                            {"stop_grace", "PLAIT_STOP_GRACE"}}) {
    const bool has_id = std::string_view(flag) == "job_id" && given->count("rdzv_id");
    if (auto text = variable(name); text && !text->empty() && !given->count(flag) && !has_id) (*given)[flag] = {*text, name};
  }
  for (const Flag& flag : kFlags) {
    if (flag.kind != Kind::kValue || given->count(flag.name)) continue;
    std::string name = cat("PET_", flag.name);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    auto text = variable(name);
    if (!text || text->empty()) continue;
    (*given)[flag.name] = {*text, name};
    command->notices.push_back(cat("--", flag.name, " ", *text, " is taken from the environment variable ", name));
  }
}

int64_t whole_number(const GivenFlag& flag, const std::string& text, int64_t least, int64_t most, const std::string& rule) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw_error(ExitCode::kUsage, "launch: ", flag.origin, " ", flag.text, ": must be ", rule, ", from ", least, " to ", most);
  return value;
}

std::chrono::milliseconds seconds(const GivenFlag& flag) {
  constexpr int64_t kWeek = 7 * 24 * 3600;
  return std::chrono::seconds(whole_number(flag, flag.text, 1, kWeek, "a whole number of seconds"));
}

int64_t read_nproc(const GivenFlag& flag, const MachineCounts& machine) {
  constexpr int64_t kMost = 4096;
  if (flag.text == "cpu") return machine.cores;
  if (flag.text == "gpu" && machine.devices == 0)
    throw_error(ExitCode::kResource, "launch: ", flag.origin, " gpu: this machine shows no CUDA device (auto takes the cores then)");
  if (flag.text == "gpu") return machine.devices;
  if (flag.text == "auto") return machine.devices > 0 ? machine.devices : machine.cores;
  return whole_number(flag, flag.text, 1, kMost, "the number of ranks on this node, auto, cpu or gpu");
}

void read_nnodes(const GivenFlag& flag, LaunchCommand* command) {
  constexpr int64_t kMost = 1 << 20;
  const size_t colon = flag.text.find(':');
  const std::string rule = "the number of nodes, N or MIN:MAX";
  command->num_nodes = whole_number(flag, flag.text.substr(colon == std::string::npos ? 0 : colon + 1), 1, kMost, rule);
  if (colon == std::string::npos) return;
  const int64_t least = whole_number(flag, flag.text.substr(0, colon), 1, kMost, rule);
  if (least > command->num_nodes) throw_error(ExitCode::kUsage, "launch: ", flag.origin, " ", flag.text, ": MIN is above MAX");
  if (least < command->num_nodes)
    command->notices.push_back(cat(flag.origin, " ", flag.text, ": ", command->num_nodes,
                                   " nodes are used; jobs whose number of nodes changes while they run are not available yet"));
}

// A name or an address, without a port.
std::string read_host(const GivenFlag& flag) {
  const std::string plain = plain_address(flag.text);
  if (plain.find(':') == std::string::npos || is_ipv6(plain)) return flag.text;
  const size_t colon = plain.rfind(':');
  const std::string host = plain.substr(0, colon), port = plain.substr(colon + 1);
  throw_error(ExitCode::kUsage, "launch: ", flag.origin, " ", flag.text, ": must be a host name or an address, without a port",
              host.find(':') != std::string::npos ? "; an IPv6 address is written like fd00::1"
              : flag.origin.ends_with("bind")
                  ? "; --master_port names the port"
                  : cat("; nearest valid: --master_addr ", host, " --master_port ", port, ", or --rdzv_endpoint ", flag.text));
}

// HOST[:PORT], [IPv6][:PORT]; a bare IPv6 address has more than one colon and no port.
void read_endpoint(const GivenFlag& flag, const GivenFlags& given, LaunchCommand* command) {
  if (given.count("master_addr"))
    throw_error(ExitCode::kUsage, "launch: ", flag.origin, " and ", given.at("master_addr").origin,
                " both name the meeting place; give one");
  std::string host = flag.text, port;
  const size_t bracket = host.rfind(']'), colon = host.rfind(':');
  const bool one_colon = colon != std::string::npos && host.find(':') == colon;
  if (bracket != std::string::npos ? colon == bracket + 1 : one_colon) {
    port = host.substr(colon + 1);
    host.resize(colon);
  }
  if (host.empty() || (host.front() == '[') != (host.back() == ']'))
    throw_error(ExitCode::kUsage, "launch: ", flag.origin, " ", flag.text, ": must be HOST:PORT; an IPv6 address in brackets");
  if (host.find(':') != std::string::npos && !is_ipv6(plain_address(host))) {
    const size_t last = host.rfind(':');
    throw_error(ExitCode::kUsage, "launch: ", flag.origin, " ", flag.text, ": must be HOST:PORT; an IPv6 address in brackets",
                is_ipv6(host.substr(0, last)) ? cat("; nearest valid: [", host.substr(0, last), "]", host.substr(last)) : "");
  }
  command->master_addr = host;
  if (port.empty()) return;
  if (given.count("master_port"))
    throw_error(ExitCode::kUsage, "launch: ", flag.origin, " ", flag.text, " and ", given.at("master_port").origin,
                " both name a port; give one");
  command->master_port = static_cast<int>(whole_number(flag, port, 0, 65535, "HOST:PORT, the port a number"));
}

// torchrun's "0|1|2|3" (none, stdout, stderr, both) or "0:1,1:3" a local rank.
std::vector<int> read_streams(const GivenFlag& flag, int64_t num_ranks) {
  std::vector<int> streams(static_cast<size_t>(num_ranks), 0);
  auto bits = [&](const std::string& text) {
    return static_cast<int>(whole_number(flag, text, 0, 3, "0, 1 (stdout), 2 (stderr) or 3 (both), or RANK:N,RANK:N with local ranks; N"));
  };
  if (flag.text.find(':') == std::string::npos) {
    streams.assign(streams.size(), bits(flag.text));
    return streams;
  }
  for (size_t begin = 0; begin <= flag.text.size();) {
    const size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    const std::string item = flag.text.substr(begin, end - begin);
    const size_t colon = std::min(item.find(':'), item.size());
    const int64_t rank = whole_number(flag, item.substr(0, colon), 0, num_ranks - 1, "RANK:N,RANK:N with local ranks");
    streams[static_cast<size_t>(rank)] = bits(item.substr(std::min(colon + 1, item.size())));
    begin = end + 1;
  }
  return streams;
}

void read_output_flags(const GivenFlags& given, LaunchCommand* command) {
  std::vector<int> redirected(static_cast<size_t>(command->nproc_per_node)), teed = redirected;
  if (auto it = given.find("log_dir"); it != given.end()) command->log_dir = it->second.text;
  if (auto it = given.find("redirects"); it != given.end()) {
    redirected = read_streams(it->second, command->nproc_per_node);
    const bool any = std::any_of(redirected.begin(), redirected.end(), [](int bits) { return bits != 0; });
    if (any && command->log_dir.empty())
      throw_error(ExitCode::kUsage, "launch: ", it->second.origin, " ", it->second.text,
                  " needs --log_dir: what is not shown must go somewhere");
  }
  if (auto it = given.find("tee"); it != given.end()) teed = read_streams(it->second, command->nproc_per_node);
  for (int64_t rank = 0; rank < command->nproc_per_node; ++rank) {
    command->shown.emplace_back();
    for (int stream = 0; stream < 2; ++stream) {
      const bool is_rank_zero = command->node_rank == 0 && rank == 0;
      if (redirected[static_cast<size_t>(rank)] >> stream & 1) command->shown.back()[stream] = Shown::kNothing;
      if (teed[static_cast<size_t>(rank)] >> stream & 1) command->shown.back()[stream] = is_rank_zero ? Shown::kPlain : Shown::kLines;
    }
  }
}

void check_nodes(const GivenFlags& given, LaunchCommand* command) {
  const bool has_address = given.count("master_addr") || given.count("rdzv_endpoint");
  if (command->num_nodes == 1) return;
  if (given.count("standalone"))
    throw_error(ExitCode::kUsage, "launch: --standalone is for one node, but --nnodes says ", command->num_nodes);
  if (!given.count("node_rank"))
    throw_error(ExitCode::kUsage, "launch: --node_rank is not given: each of the ", command->num_nodes,
                " nodes runs this command with its own number, from 0 to ", command->num_nodes - 1);
  if (!has_address)
    throw_error(ExitCode::kUsage, "launch: --master_addr is not given: all ", command->num_nodes,
                " nodes need the same address of node 0, and --master_port (or --rdzv_endpoint HOST:PORT)");
  constexpr int kTorchrunPort = 29500;
  if (command->master_port == 0) command->master_port = kTorchrunPort;
  if (command->max_restarts > 0)
    throw_error(ExitCode::kUsage, "launch: --max_restarts ", command->max_restarts, " with ", command->num_nodes,
                " nodes: restarts over several nodes are not available yet; nearest valid value 0 (start the job again from outside)");
}

}  // namespace

MachineCounts count_machine() {
  MachineCounts counts;
  counts.cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  if (auto visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string text = visible;
    counts.devices = text.empty() || text == "-1" || text == "NoDevFiles" ? 0 : 1 + std::count(text.begin(), text.end(), ',');
    return counts;
  }
  std::error_code none;
  for (auto it = std::filesystem::directory_iterator("/dev", none); !none && it != std::filesystem::directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("nvidia") && name.size() > 6 &&
        std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); }))
      ++counts.devices;
  }
  return counts;
}

LaunchCommand read_launch_command(const std::vector<std::string>& words, const Variable& variable, const MachineCounts& machine) {
  LaunchCommand command;
  GivenFlags given = split_words(words, &command);
  command.help = given.count("help");
  if (command.help) return command;
  add_variables(variable, &command, &given);
  auto with = [&](const char* name, auto&& use) {
    if (auto it = given.find(name); it != given.end()) use(it->second);
  };
  with("nproc_per_node", [&](const GivenFlag& f) { command.nproc_per_node = read_nproc(f, machine); });
  with("nnodes", [&](const GivenFlag& f) { read_nnodes(f, &command); });
  with("node_rank", [&](const GivenFlag& f) {
    command.node_rank = whole_number(f, f.text, 0, command.num_nodes - 1, cat("below the number of nodes, ", command.num_nodes));
  });
  with("master_addr", [&](const GivenFlag& f) { command.master_addr = read_host(f); });
  with("master_port", [&](const GivenFlag& f) {
    const int64_t least = command.num_nodes == 1 ? 0 : 1;
    command.master_port =
        static_cast<int>(whole_number(f, f.text, least, 65535, least == 0 ? "a TCP port (0: any free one)" : "a TCP port"));
  });
  with("rdzv_endpoint", [&](const GivenFlag& f) { read_endpoint(f, given, &command); });
  with("rdzv_timeout", [&](const GivenFlag& f) { command.rendezvous_timeout = seconds(f); });
  with("stop_grace", [&](const GivenFlag& f) { command.stop_grace = seconds(f); });
  with("max_restarts", [&](const GivenFlag& f) { command.max_restarts = whole_number(f, f.text, 0, 1000, "a number of restarts"); });
  with("rdzv_id", [&](const GivenFlag& f) { command.job_id = f.text; });
  with("job_id", [&](const GivenFlag& f) { command.job_id = f.text; });
  with("bind", [&](const GivenFlag& f) { command.bind = read_host(f); });
  with("secret_file", [&](const GivenFlag& f) { command.secret_file = f.text; });
  command.module = given.count("module");
  command.no_python = given.count("no_python");
  if (given.count("rdzv_id") && given.count("job_id") && given.at("rdzv_id").text != given.at("job_id").text)
    throw_error(ExitCode::kUsage, "launch: --rdzv_id ", given.at("rdzv_id").text, " and --job_id ", given.at("job_id").text,
                " are two names of one setting and differ");
  check_nodes(given, &command);
  read_output_flags(given, &command);
  if (command.program.empty()) throw_error(ExitCode::kUsage, "launch: no program is named: plait launch [flags] -- plait train CONFIG ...");
  return command;
}

}  // namespace plait
