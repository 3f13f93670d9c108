#include "plait/train/trace.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "plait/base/atomic_file.h"
#include "plait/base/error.h"
#include "plait/comm/link_test.h"

namespace plait {

namespace {

constexpr int kTraceTag = 7911;
constexpr int64_t kPieceBytes = 1 << 20;

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

// Ranks of one boot of one kernel read the same monotonic clock, in whatever containers they are.
std::string this_machine() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return cat(name, '\n', boot);
}

// "12.345": exact, so that what is nested in nanoseconds is nested in the file.
std::string microseconds(int64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%s%lld.%03lld", ns < 0 ? "-" : "", static_cast<long long>(std::abs(ns) / 1000),
                static_cast<long long>(std::abs(ns) % 1000));
  return text;
}

// Text by text from rank `from` to rank 0, in pieces, so that rank 0 holds no more than one of them.
std::string text_to_rank_0(Mesh& mesh, int64_t from, const std::string& own) {
  ProcessGroup& world = mesh.world();
  auto on_device = [&](at::ScalarType type) { return at::TensorOptions().dtype(type).device(world.device()); };
  if (world.rank() == from) {
    at::Tensor bytes = at::empty({static_cast<int64_t>(own.size())}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
    bytes = bytes.to(world.device());
    world.send(at::full({1}, bytes.numel(), on_device(at::kLong)), 0, kTraceTag)->wait();
    for (int64_t at = 0; at < bytes.numel(); at += kPieceBytes)
      world.send(bytes.narrow(0, at, std::min(kPieceBytes, bytes.numel() - at)), 0, kTraceTag)->wait();
    return {};
  }
  at::Tensor length = at::zeros({1}, on_device(at::kLong));
  world.recv(length, from, kTraceTag)->wait();
  std::string text(static_cast<size_t>(length.item<int64_t>()), ' ');
  for (size_t at = 0; at < text.size(); at += kPieceBytes) {
    at::Tensor piece = at::empty({static_cast<int64_t>(std::min<size_t>(kPieceBytes, text.size() - at))}, on_device(at::kByte));
    world.recv(piece, from, kTraceTag)->wait();
    piece = piece.cpu();
    std::memcpy(text.data() + at, piece.const_data_ptr(), static_cast<size_t>(piece.numel()));
  }
  return text;
}

std::string metadata(const char* name, int64_t pid, int64_t tid, const std::string& arguments) {
  return cat(",\n{\"ph\":\"M\",\"name\":\"", name, "\",\"pid\":", pid, ",\"tid\":", tid, ",\"args\":{", arguments, "}}");
}

// Names and order of machines and ranks.
std::string rows_json(const Mesh& mesh, const std::vector<detail::TraceClock>& clocks, const std::vector<std::string>& machines) {
  std::string text;
  std::set<int64_t> named;
  for (int64_t rank = 0; rank < static_cast<int64_t>(clocks.size()); ++rank) {
    const detail::TraceClock& clock = clocks[static_cast<size_t>(rank)];
    const std::string& machine = machines[static_cast<size_t>(rank)];
    if (named.insert(clock.machine_index).second)
      text += metadata("process_name", clock.machine_index, rank, cat("\"name\":", quoted(machine.substr(0, machine.find('\n')))));
    text += metadata("thread_name", clock.machine_index, rank,
                     cat("\"name\":", quoted(cat("rank ", rank, " (", to_string(mesh.layout().coordinate_of(rank)), ")"))));
    text += metadata("thread_sort_index", clock.machine_index, rank, cat("\"sort_index\":", rank));
  }
  return text;
}

std::string clocks_text(const std::vector<detail::TraceClock>& clocks) {
  int64_t error = 0;
  bool several = false;
  for (const auto& clock : clocks) {
    error = std::max(error, clock.error_ns);
    several |= clock.error_ns != 0;
  }
  return several ? cat("clocks of other machines were compared by messages with rank 0, to ", microseconds(error), " us")
                 : "all ranks read the same clock";
}

}  // namespace

namespace detail {

std::vector<TraceClock> trace_clocks(Mesh& mesh, const std::string& machine, const std::function<int64_t()>& now_ns) {
  auto machines = gather_texts(mesh.world(), machine);
  auto boot_of = [](const std::string& text) { return text.substr(std::min(text.find('\n'), text.size())); };
  bool several_clocks = false;
  for (const auto& other : machines) several_clocks |= boot_of(other) != boot_of(machines[0]);
  LinkReport links;
  if (several_clocks) links = compare_clocks(mesh, 40, [&] { return 1e-9 * static_cast<double>(now_ns()); });
  std::vector<TraceClock> clocks(machines.size());
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    auto first = std::find(machines.begin(), machines.end(), machines[rank]);
    auto same = static_cast<size_t>(first - machines.begin());
    std::set<std::string> before(machines.begin(), first);
    clocks[rank].machine_index = same == rank ? static_cast<int64_t>(before.size()) : clocks[same].machine_index;
    // The ranks of one clock all take what its first one measured: they stay exact among each other.
    auto clock_owner = std::find_if(machines.begin(), machines.end(), [&](auto& m) { return boot_of(m) == boot_of(machines[rank]); });
    auto owner = static_cast<size_t>(clock_owner - machines.begin());
    if (owner == 0) continue;
    clocks[rank].offset_ns = -std::llround(1e9 * links.clock_seconds[owner]);
    clocks[rank].error_ns = std::max<int64_t>(1, std::llround(1e9 * links.clock_error_seconds[owner]));
  }
  return clocks;
}

std::string events_json(const std::vector<TraceEvent>& events, int64_t rank, const TraceClock& clock, int64_t origin_ns) {
  std::string text, place = cat(",\"pid\":", clock.machine_index, ",\"tid\":", rank);
  int64_t operation = 0;
  for (const TraceEvent& e : events) {
    std::string ts = microseconds(e.begin_ns + clock.offset_ns - origin_ns), arguments;
    if (e.bytes >= 0) arguments = cat(",\"args\":{\"bytes\":", e.bytes, ",\"group\":", quoted(e.group), "}");
    if (!e.in_flight) {
      text += cat(",\n{\"ph\":\"X\",\"name\":", quoted(e.name), ",\"cat\":\"", part_name(e.part), '"', place, ",\"ts\":", ts,
                  ",\"dur\":", microseconds(e.end_ns - e.begin_ns), arguments, "}");
      continue;
    }
    std::string head = cat("\"name\":", quoted(cat("rank ", rank, " under way: ", e.name, " in ", e.group)),
                           ",\"cat\":\"under way\",\"id\":\"", rank, ".", operation++, '"', place, ",\"ts\":");
    text += cat(",\n{\"ph\":\"b\",", head, ts, arguments, "}");
    text += cat(",\n{\"ph\":\"e\",", head, microseconds(e.end_ns + clock.offset_ns - origin_ns), "}");
  }
  return text;
}

}  // namespace detail

void check_trace_steps(const Config& config, int64_t num_steps) {
  const ProfileConfig& profile = config.train.profile;
  if (profile.trace_file.empty() || profile.first_step <= num_steps) return;
  throw_error(ExitCode::kUsage, "train.profile.trace_file", config.where("train.profile.trace_file"), ": the trace begins with step ",
              profile.first_step, ", train.profile.first_step",
              config.origin.count("train.profile.first_step") ? config.where("train.profile.first_step") : " by default",
              ", and the run has ", num_steps, " steps; nearest valid value ", num_steps);
}

StepTrace::StepTrace(const Config& config, int64_t num_steps, StepProfiler& profiler, Mesh& mesh,
                     std::function<void(const std::string&)> say)
    : config_(config.train.profile), profiler_(profiler), mesh_(mesh), say_(std::move(say)), done_(config_.trace_file.empty()) {
  check_trace_steps(config, num_steps);
}

void StepTrace::before_step(int64_t step) {
  if (!done_ && step == config_.first_step) profiler_.start_trace(kMaxEvents);
}

void StepTrace::after_step(int64_t step) {
  if (done_ || step < config_.first_step) return;
  ++num_traced_;
  if (num_traced_ == config_.num_steps) write();
}

void StepTrace::finish() {
  if (!done_ && num_traced_ > 0) write();
  else if (!done_) say_(cat("no trace was written: the run ended before step ", config_.first_step, " (train.profile.first_step)"));
  done_ = true;
}

void StepTrace::write() {
  profiler_.stop_trace();
  done_ = true;
  const std::string machine = this_machine();
  auto machines = gather_texts(mesh_.world(), machine);
  auto clocks = detail::trace_clocks(mesh_, machine, [this] { return profiler_.now_ns(); });
  const auto& own = clocks[static_cast<size_t>(mesh_.rank())];
  int64_t begin = std::numeric_limits<int64_t>::max();
  for (const auto& event : profiler_.events()) begin = std::min(begin, event.begin_ns + own.offset_ns);
  auto options = at::TensorOptions().dtype(at::kLong).device(mesh_.world().device());
  at::Tensor origin = at::full({1}, begin, options), dropped = at::full({1}, profiler_.num_dropped_events(), options);
  mesh_.world().all_reduce(origin, ReduceOp::kMin)->wait();
  mesh_.world().all_reduce(dropped)->wait();
  std::string events = detail::events_json(profiler_.events(), mesh_.rank(), own, origin.item<int64_t>());
  profiler_.clear_events();
  if (mesh_.rank() != 0) {
    text_to_rank_0(mesh_, mesh_.rank(), events);
    return;
  }
  AtomicFile file(config_.trace_file);
  file.write(cat("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"plait\",\"steps\":\"", config_.first_step, " to ",
                 config_.first_step + num_traced_ - 1, "\",\"ranks\":", mesh_.world().size(), ",\"clocks\":\"", clocks_text(clocks),
                 "\",\"events_left_out\":", dropped.item<int64_t>(), "},\"traceEvents\":[\n"));
  file.write(cat("{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":0,\"tid\":0,\"args\":{\"sort_index\":0}}"));
  file.write(rows_json(mesh_, clocks, machines));
  file.write(events);
  for (int64_t rank = 1; rank < mesh_.world().size(); ++rank) file.write(text_to_rank_0(mesh_, rank, events));
  file.write("\n]}\n");
  file.commit();
  say_(
      cat("trace of steps ", config_.first_step, " to ", config_.first_step + num_traced_ - 1, ": ", config_.trace_file,
          " (open it in ui.perfetto.dev)",
          dropped.item<int64_t>() > 0 ? cat("; ", dropped.item<int64_t>(), " events were left out, at most ", kMaxEvents, " a rank") : ""));
}

void check_trace_file(const Config& config) {
  const std::string& path = config.train.profile.trace_file;
  if (path.empty()) return;
  auto refuse = [&](const std::string& why) {
    throw_error(ExitCode::kUsage, "train.profile.trace_file ", path, config.where("train.profile.trace_file"), " ", why,
                "; name a file in a folder that this user may write");
  };
  namespace fs = std::filesystem;
  std::error_code failed;
  if (fs::is_directory(path, failed)) refuse("is a folder");
  if (fs::exists(path, failed) && !fs::is_regular_file(path, failed)) refuse("is no plain file");
  fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) fs::create_directories(folder, failed);
  if (failed) refuse(cat("cannot be written: ", failed.message()));
  try {
    AtomicFile probe(path);
  } catch (const Error& error) {
    refuse(cat("cannot be written: ", error.what()));
  }
}

}  // namespace plait
