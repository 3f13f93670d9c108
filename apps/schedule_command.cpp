#include "apps/schedule_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "plait/base/atomic_file.h"
#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/plan/pipeline_plan.h"

namespace plait {

namespace {

Schedule schedule_of(const ScheduleCommandOptions& options) {
  if (!options.from.empty()) return parse_schedule(read_schedule_text(options.from, cat("--from ", options.from)), options.from);
  auto kind = parse_enum_word<ScheduleKind>(options.kind);
  if (options.kind == "forward")
    return make_forward_schedule(options.stages, std::max<int64_t>(1, options.virtual_stages), options.micro_batches);
  if (!kind) {
    auto known = enum_choices<ScheduleKind>();
    std::erase_if(known, [](const std::string& word) { return word == "auto" || word == "custom"; });
    known.push_back("forward");
    throw_error(ExitCode::kUsage, "--kind ", options.kind, ": unknown schedule. Known: ", join(known));
  }
  if (*kind == ScheduleKind::kAuto)
    throw_error(ExitCode::kUsage, "--kind auto: the choice needs a model; plait train tells what it took. Name a kind here");
  if (*kind == ScheduleKind::kCustom) throw_error(ExitCode::kUsage, "--kind custom: name the file with --from FILE");
  bool several = *kind == ScheduleKind::kInterleaved1F1B || *kind == ScheduleKind::kZeroBubbleV;
  int64_t by_default = several ? 2 : 1;
  return make_schedule(*kind, options.stages, options.virtual_stages == 0 ? by_default : options.virtual_stages, options.micro_batches);
}

std::string percent(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.2f %%", 100 * share);
  return buffer;
}

void check_cost(const char* flag, double value) {
  if (!std::isfinite(value) || value < 0 || value > 1e12)
    throw_error(ExitCode::kUsage, flag, " ", value, ": a cost is a number from 0 to 1e12");
}

// One cost for all stages, or one for each of them.
ScheduleCost cost_of(const ScheduleCommandOptions& options, int64_t num_stages) {
  ScheduleCost cost;
  cost.send = options.send;
  check_cost("--send", cost.send);
  struct Flag {
    const char* name;
    const std::vector<double>& given;
    double StageCost::*slot;
    double ScheduleCost::*for_all;
  };
  const Flag flags[] = {{"--forward", options.forward, &StageCost::forward, &ScheduleCost::forward},
                        {"--backward", options.backward, &StageCost::backward, &ScheduleCost::backward},
                        {"--weight", options.weight, &StageCost::weight, &ScheduleCost::weight}};
  bool by_stage = false;
  for (const Flag& flag : flags) {
    for (double value : flag.given) check_cost(flag.name, value);
    if (flag.given.size() > 1 && static_cast<int64_t>(flag.given.size()) != num_stages)
      throw_error(ExitCode::kUsage, flag.name, " has ", flag.given.size(), " costs: give one, or one for each of the ", num_stages,
                  " stages");
    by_stage = by_stage || flag.given.size() > 1;
    if (flag.given.size() == 1) cost.*flag.for_all = flag.given[0];
  }
  auto check_weight = [&](double weight, double backward) {
    if (!options.weight.empty() && weight > backward)
      throw_error(ExitCode::kUsage, "--weight ", weight, " is more than --backward ", backward,
                  ", of which it is a part; nearest valid value ", backward);
  };
  if (!by_stage) {
    check_weight(cost.weight, cost.backward);
    return cost;
  }
  for (int64_t s = 0; s < num_stages; ++s) {
    StageCost& stage = cost.stages.emplace_back(StageCost{cost.forward, cost.backward, cost.weight});
    for (const Flag& flag : flags)
      if (flag.given.size() > 1) stage.*flag.slot = flag.given[static_cast<size_t>(s)];
    check_weight(stage.weight, stage.backward);
  }
  return cost;
}

std::string costs_text(const std::vector<double>& given, double by_default) { return given.empty() ? cat(by_default) : join(given, ","); }

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
  Schedule schedule = schedule_of(options);
  ScheduleReport report = check_schedule(schedule, cost_of(options, schedule.num_stages));
  if (!report.complete) {
    std::string place = options.from.empty() ? "" : cat(options.from, ":", report.problem_rank < 0 ? 1 : report.problem_rank + 2, ": ");
    throw_error(ExitCode::kUsage, place, "not a valid schedule: ", report.problem);
  }
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
  bool defers = report.peak_held != report.peak_in_flight;
  out << "\ntimeline (forward " << costs_text(options.forward, 1) << ", backward " << costs_text(options.backward, 2) << ", send "
      << cat(options.send) << ")\n"
      << draw_text(report) << "\nbubble " << percent(report.bubble) << " of the ranks' time, length " << cat(report.makespan)
      << "\npeak micro-batches in flight, by rank: " << join(report.peak_in_flight) << '\n';
  if (defers) out << "the same with those whose weight gradient is to come: " << join(report.peak_held) << '\n';
  if (schedule.num_stages > schedule.pp_size)
    out << "(counted by stage: each holds 1/" << schedule.num_stages / schedule.pp_size << " of a rank's layers)\n";
  if (!options.svg.empty()) out << "drawn to " << options.svg << '\n';
}

CommandHelp schedule_help() {
  return {"schedule",
          "print, check and draw a pipeline schedule",
          {"schedule --stages N --micro_batches N [--kind K] [--virtual N] [costs] [--svg FILE] [--text]",
           "schedule --from FILE [costs] [--svg FILE] [--text]"},
          "Prints a pipeline schedule: its actions, its timeline and its bubble.",
          {{"--kind", "gpipe | 1f1b | interleaved_1f1b | zb_h1 | zb_h2 | zb_v | forward", "which schedule (default 1f1b)"},
           {"--stages", "N", "pipeline ranks"},
           {"--virtual", "N", "stages a rank holds (default 2 for interleaved_1f1b and zb_v, else 1)"},
           {"--micro_batches", "N", "micro-batches of a step"},
           {"--from", "FILE", "check and draw a schedule in the text form instead (see --text)"},
           {"--forward", "T[,T..]", "cost of a forward (default 1): one for all stages, or one for each"},
           {"--backward", "T[,T..]", "cost of a backward, its weight gradient included (default 2)"},
           {"--weight", "T[,T..]", "cost of a deferred weight gradient (default 1)"},
           {"--send", "T", "time of a message (default 0)"},
           {"--svg", "FILE", "draw the timeline to this file"},
           {"--text", "", "print the text form only: what train.distributed.schedule_file takes"}}};
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
  app.add_option("--forward", options.forward)->delimiter(',');
  app.add_option("--backward", options.backward)->delimiter(',');
  app.add_option("--weight", options.weight)->delimiter(',');
  app.add_option("--send", options.send);
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
