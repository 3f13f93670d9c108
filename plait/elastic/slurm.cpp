#include "plait/elastic/slurm.h"

#include <algorithm>
#include <cctype>

namespace plait {

namespace {

using detail::kMostRanks;

[[noreturn]] void not_a_list(const std::string& variable, const std::string& text, const std::string& why) {
  throw_error(ExitCode::kUsage, "the environment variable ", variable, "=", text.substr(0, 200), " is no list that Slurm writes: ", why);
}

// Splits at commas that stand outside brackets.
std::vector<std::string> parts_of(const std::string& text, char open, char close, const std::string& variable) {
  std::vector<std::string> parts(1);
  bool inside = false;
  for (char c : text) {
    if (c == open || c == close) {
      if (inside == (c == open)) not_a_list(variable, text, cat("'", c, "' is out of place"));
      inside = c == open;
    }
    if (c == ',' && !inside) parts.emplace_back();
    else parts.back().push_back(c);
  }
  if (inside) not_a_list(variable, text, cat("'", open, "' is not closed"));
  return parts;
}

struct RangeReader {
  const std::string& variable;
  const std::string& list;

  int64_t number(const std::string& digits) const {
    if (digits.empty() || digits.size() > 15 || !std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); }))
      not_a_list(variable, list, cat("'", digits, "' is no number"));
    return std::stoll(digits);
  }

  // "1-3,07" -> {"1", "2", "3", "07"}
  std::vector<std::string> values(const std::string& text) const {
    std::vector<std::string> out;
    for (const std::string& range : parts_of(text, '[', ']', variable)) {
      auto dash = range.find('-');
      std::string first = range.substr(0, dash), last = dash == std::string::npos ? first : range.substr(dash + 1);
      int64_t begin = number(first), end = number(last);
      if (end < begin || end - begin >= kMostRanks) not_a_list(variable, list, cat("the range ", range));
      for (int64_t value = begin; value <= end; ++value) {
        std::string digits = cat(value);
        if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
        out.push_back(digits);
      }
    }
    return out;
  }

  // One name with any number of brackets; the last bracket counts fastest.
  std::vector<std::string> names(const std::string& pattern) const {
    std::vector<std::string> out{""};
    for (size_t at = 0; at < pattern.size();) {
      std::vector<std::string> pieces;
      if (pattern[at] == '[') {
        auto close = pattern.find(']', at);
        pieces = values(pattern.substr(at + 1, close - at - 1));
        at = close + 1;
      } else {
        auto open = std::min(pattern.find('[', at), pattern.size());
        pieces = {pattern.substr(at, open - at)};
        at = open;
      }
      if (static_cast<int64_t>(out.size() * pieces.size()) > kMostRanks) not_a_list(variable, list, "too many names");
      std::vector<std::string> longer;
      for (const auto& head : out)
        for (const auto& piece : pieces) longer.push_back(head + piece);
      out = std::move(longer);
    }
    return out;
  }
};

// First of the names that is set.
std::string first_set(const Variable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (detail::filled(variable, name)) return name;
  return "";
}

// Ranks on this node, of the step's list "4(x2),3"; none when Slurm does not say.
std::optional<detail::Given> tasks_here(const Variable& variable, int64_t node, int64_t world_size) {
  std::string name = first_set(variable, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (name.empty()) return std::nullopt;
  auto counts = expand_tasks_per_node(*variable(name), name);
  if (node >= static_cast<int64_t>(counts.size()))
    throw_error(ExitCode::kUsage, "SLURM_NODEID=", node, " contradicts ", name, "=", *variable(name), ", a list of ", counts.size(),
                " nodes");
  int64_t here = counts[static_cast<size_t>(node)], sum = 0;
  for (int64_t count : counts) sum += count;
  // The job's list may belong to another step; the step's own must come out.
  if (sum == world_size) return detail::Given{name, here};
  if (name == "SLURM_TASKS_PER_NODE") return std::nullopt;
  throw_error(ExitCode::kUsage, name, "=", *variable(name), " makes ", sum, " tasks, but SLURM_STEP_NUM_TASKS says ", world_size);
}

}  // namespace

std::vector<std::string> expand_node_list(const std::string& list, const std::string& variable_name) {
  RangeReader reader{variable_name, list};
  std::vector<std::string> names;
  for (const auto& pattern : parts_of(list, '[', ']', variable_name)) {
    if (pattern.empty()) not_a_list(variable_name, list, "an empty name");
    auto more = reader.names(pattern);
    names.insert(names.end(), more.begin(), more.end());
    if (static_cast<int64_t>(names.size()) > kMostRanks) not_a_list(variable_name, list, "too many names");
  }
  return names;
}

std::vector<int64_t> expand_tasks_per_node(const std::string& text, const std::string& variable_name) {
  RangeReader reader{variable_name, text};
  std::vector<int64_t> counts;
  for (const std::string& part : parts_of(text, '(', ')', variable_name)) {
    auto open = part.find('(');
    int64_t times = 1;
    if (open != std::string::npos) {
      if (part[open + 1] != 'x' || part.back() != ')') not_a_list(variable_name, text, cat("'", part, "'"));
      times = reader.number(part.substr(open + 2, part.size() - open - 3));
    }
    int64_t count = reader.number(part.substr(0, open));
    if (times < 1 || times > kMostRanks || static_cast<int64_t>(counts.size()) + times > kMostRanks)
      not_a_list(variable_name, text, cat("'", part, "'"));
    counts.insert(counts.end(), static_cast<size_t>(times), count);
  }
  return counts;
}

namespace detail {

std::optional<LauncherView> read_slurm_step(const Variable& variable) {
  // SLURM_NTASKS is the job's wish, also in the batch script and in the shell of an interactive step; only srun writes the step's own count.
  std::string size_name = first_set(variable, {"SLURM_STEP_NUM_TASKS"});
  if (size_name.empty() && filled(variable, "SLURM_STEP_NODELIST")) size_name = first_set(variable, {"SLURM_NTASKS", "SLURM_NPROCS"});
  if (size_name.empty() || !filled(variable, "SLURM_PROCID")) return std::nullopt;

  LauncherView view;
  view.launcher = "Slurm";
  view.world_size = *given_number(variable, size_name, 1, kMostRanks, "the tasks of the job step");
  int64_t world = view.world_size.value;
  view.rank = *given_number(variable, "SLURM_PROCID", 0, world - 1, cat("below ", said(view.world_size)));
  std::string list_name = first_set(variable, {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"});
  auto hosts = list_name.empty() ? std::vector<std::string>{} : expand_node_list(*variable(list_name), list_name);
  if (auto node = given_number(variable, "SLURM_NODEID", 0, kMostRanks, "the node's number in the job step")) view.node_rank = node->value;
  view.local_world_size = {size_name, world};
  if (auto here = tasks_here(variable, view.node_rank, world)) view.local_world_size = *here;
  else if (hosts.size() > 1)
    throw_error(ExitCode::kUsage, "the environment variable SLURM_STEP_TASKS_PER_NODE is not set, but ", list_name, "=",
                *variable(list_name), " names ", hosts.size(), " nodes: srun sets both");
  auto local = given_number(variable, "SLURM_LOCALID", 0, view.local_world_size.value - 1, cat("below ", said(view.local_world_size)));
  if (!local && world > 1)
    throw_error(ExitCode::kUsage, "the environment variable SLURM_LOCALID is not set, but SLURM_PROCID is: srun sets both");
  view.local_rank = local.value_or(Given{"SLURM_LOCALID", 0});

  std::string job = filled(variable, "SLURM_JOB_ID").value_or(filled(variable, "SLURM_JOBID").value_or(""));
  std::string step = filled(variable, "SLURM_STEP_ID").value_or(filled(variable, "SLURM_STEPID").value_or("0"));
  view.job_id = cat("slurm-", job, ".", step);
  view.master_port = port_from(view.job_id);
  // All on one machine: its own name may resolve to anything, loopback is certain.
  if (view.local_world_size.value == world) view.master_addr = "127.0.0.1";
  else if (!hosts.empty()) view.master_addr = hosts.front();
  else view.address_hint = "srun set no SLURM_STEP_NODELIST";
  return view;
}

}  // namespace detail
}  // namespace plait
