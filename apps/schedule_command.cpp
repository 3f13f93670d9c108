#include "apps/schedule_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "plait/base/atomic_file.h"
#include "plait/base/error.h"
#include "plait/config/enum_names.h"

namespace plait {

namespace {

Schedule schedule_of(const ScheduleCommandOptions& options) {
  if (!options.from.empty()) {
    std::ifstream file(options.from, std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) throw_error(ExitCode::kUsage, "--from ", options.from, ": the file cannot be read or is empty");
    return parse_schedule(text.str());
  }
  auto kind = parse_enum_word<ScheduleKind>(options.kind);
  if (options.kind == "forward")
    return make_forward_schedule(options.stages, std::max<int64_t>(1, options.virtual_stages), options.micro_batches);
  if (!kind) {
    auto known = enum_choices<ScheduleKind>();
    known.push_back("forward");
    throw_error(ExitCode::kUsage, "--kind ", options.kind, ": unknown schedule. Known: ", join(known));
  }
  int64_t by_default = *kind == ScheduleKind::kInterleaved1F1B ? 2 : 1;
  return make_schedule(*kind, options.stages, options.virtual_stages == 0 ? by_default : options.virtual_stages, options.micro_batches);
}

std::string percent(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.2f %%", 100 * share);
  return buffer;
}

void check_costs(const ScheduleCost& cost) {
  for (auto [flag, value] :
       {std::pair{"--forward", cost.forward}, {"--backward", cost.backward}, {"--send", cost.send}, {"--weight", cost.weight}})
    if (!std::isfinite(value) || value < 0 || value > 1e12)
      throw_error(ExitCode::kUsage, flag, " ", value, ": a cost is a number from 0 to 1e12");
}

// Flags accept '-' and '_': "--micro-batches" is "--micro_batches". Values stay as they are.
std::vector<std::string> with_underscores(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words)
    if (word.rfind("--", 0) == 0) std::replace(word.begin() + 2, word.begin() + std::min(word.find('='), word.size()), '-', '_');
  std::reverse(words.begin(), words.end());  // CLI11 takes a vector from its end
  return words;
}

}  // namespace

void run_schedule_command(const ScheduleCommandOptions& options, std::ostream& out) {
  check_costs(options.cost);
  Schedule schedule = schedule_of(options);
  ScheduleReport report = check_schedule(schedule, options.cost);
  if (!report.complete)
    throw_error(ExitCode::kUsage, options.from.empty() ? "" : options.from + ": ", "not a valid schedule: ", report.problem);
  if (!options.svg.empty()) write_file_atomically(options.svg, draw_svg(schedule, report));
  if (options.text_only) {
    out << to_text(schedule);
    return;
  }
  out << "schedule " << schedule.name << ": " << schedule.pp_size << " pipeline ranks, " << schedule.num_stages << " stages, "
      << schedule.num_micro_batches << " micro-batches\n\nactions (rank by rank, in order)\n";
  for (int64_t rank = 0; rank < schedule.pp_size; ++rank) {
    out << "rank " << rank << ":";
    for (const Action& action : schedule.actions[rank]) out << ' ' << to_string(action);
    out << '\n';
  }
  out << "\ntimeline (forward " << cat(options.cost.forward) << ", backward " << cat(options.cost.backward) << ", send "
      << cat(options.cost.send) << ")\n"
      << draw_text(report) << "\nbubble " << percent(report.bubble) << " of the ranks' time, length " << cat(report.makespan)
      << "\npeak micro-batches in flight, by rank: " << join(report.peak_in_flight) << '\n';
  if (!options.svg.empty()) out << "drawn to " << options.svg << '\n';
}

CommandHelp schedule_help() {
  return {"schedule",
          "print, check and draw a pipeline schedule",
          {"schedule --stages N --micro_batches N [--kind K] [--virtual N] [costs] [--svg FILE] [--text]",
           "schedule --from FILE [costs] [--svg FILE] [--text]"},
          "Prints a pipeline schedule: its actions, its timeline and its bubble.",
          {{"--kind", "gpipe | 1f1b | interleaved_1f1b | zb_h1 | zb_h2 | forward", "which schedule (default 1f1b)"},
           {"--stages", "N", "pipeline ranks"},
           {"--virtual", "N", "stages a rank holds (default 2 for interleaved_1f1b, else 1)"},
           {"--micro_batches", "N", "micro-batches of a step"},
           {"--from", "FILE", "check and draw a schedule in the text form instead (see --text)"},
           {"--forward", "T", "cost of a forward (default 1)"},
           {"--backward", "T", "cost of a backward (default 2)"},
           {"--weight", "T", "cost of a deferred weight gradient (default 1)"},
           {"--send", "T", "time of a message (default 0)"},
           {"--svg", "FILE", "draw the timeline to this file"},
           {"--text", "", "print the text form only"}}};
}

int schedule_command(int argc, char** argv) {
  ScheduleCommandOptions options;
  CLI::App app;
  auto* kind = app.add_option("--kind", options.kind);
  auto* stages = app.add_option("--stages", options.stages);
  auto* virtual_stages = app.add_option("--virtual", options.virtual_stages);
  auto* micro_batches = app.add_option("--micro_batches", options.micro_batches);
  auto* from = app.add_option("--from", options.from);
  for (auto* option : {kind, stages, virtual_stages, micro_batches}) from->excludes(option);
  app.add_option("--forward", options.cost.forward);
  app.add_option("--backward", options.cost.backward);
  app.add_option("--weight", options.cost.weight);
  app.add_option("--send", options.cost.send);
  app.add_option("--svg", options.svg);
  app.add_flag("--text", options.text_only);
  try {
    app.parse(with_underscores(argc, argv));
  } catch (const CLI::CallForHelp&) {
    std::cout << help_text(schedule_help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw_error(ExitCode::kUsage, "schedule: ", error.what(), " (plait schedule --help tells the flags)");
  }
  if (options.from.empty() && (stages->count() == 0 || micro_batches->count() == 0))
    throw_error(ExitCode::kUsage,
                "schedule: --stages and --micro_batches are needed (or --from FILE), for example "
                "plait schedule --kind 1f1b --stages 4 --micro_batches 8");
  for (auto [option, value] :
       {std::pair{stages, options.stages}, {micro_batches, options.micro_batches}, {virtual_stages, options.virtual_stages}})
    if (option->count() > 0 && value < 1) throw_error(ExitCode::kUsage, option->get_name(), " ", value, ": must be at least 1");
  run_schedule_command(options, std::cout);
  return 0;
}

}  // namespace plait
