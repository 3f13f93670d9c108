// Schedule: which stage does what with which micro-batch, in which order; plain data, printable and checkable without
// tensors. Stages here are virtual stages 0..num_stages-1; virtual stage s lives on pipeline rank s % pp_size unless the schedule has a
// table of its own (zb_v: 0 1 .. p-1 p-1 .. 1 0). Every rank holds equally many.
// Text form of an action: "2F0" forward of micro-batch 0 on virtual stage 2, "2B0" its backward, "2W0" a deferred weight
// gradient, "2SF0" / "2RF0" send / receive of the activation that leaves / enters stage 2 for micro-batch 0, "2SB0" / "2RB0" the
// same for gradients (2SB0: stage 2 sends the gradient of its input to stage 1; 2RB0: it receives that of its output).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/config/config.h"

namespace plait {

enum class ActionKind { kForward, kBackward, kWeight, kSendForward, kRecvForward, kSendBackward, kRecvBackward };

struct Action {
  int64_t stage = 0;  // virtual stage
  ActionKind kind = ActionKind::kForward;
  int64_t micro_batch = 0;
  bool operator==(const Action&) const = default;
};

struct Schedule {
  std::string name;        // the setting's word: "1f1b", ...; "forward" for forwards only
  int64_t pp_size = 1;     // pipeline ranks
  int64_t num_stages = 1;  // virtual stages = pp_size * chunks a rank
  int64_t num_micro_batches = 1;
  std::vector<std::vector<Action>> actions;  // [pp_rank] in execution order
  std::vector<int64_t> in_flight_limit;      // [pp_rank] forwards that may wait for their backward; empty = no limit claimed
  std::vector<int64_t> stage_ranks;          // [stage] its pipeline rank; empty = stage % pp_size

  bool forward_only() const { return name == "forward"; }
  int64_t rank_of_stage(int64_t stage) const { return stage_ranks.empty() ? stage % pp_size : stage_ranks[static_cast<size_t>(stage)]; }
  // Stages of the same rank below this one.
  int64_t chunk_of_stage(int64_t stage) const;
  bool operator==(const Schedule&) const = default;
};

// Every schedule here keeps these rules, and check_schedule verifies them:
//  - a rank executes its list in order: a receive blocks, a send is asynchronous;
//  - messages exist only where producer and consumer stage lie on different pipeline ranks (none when pp_size is 1, nor between the two
//    middle stages of zb_v);
//  - a send follows its production (of built-in kinds: directly); between two ranks, per direction, receives stand in the order of the sends;
//  - the backwards of one stage run in micro-batch order, so every kind sums gradients in the same order.

// Builds a schedule for any num_micro_batches >= 1 (fewer than stages too). Interleaved needs virtual_pipeline_size >= 2; when
// num_micro_batches is not a multiple of pp_size it still covers every micro-batch once. zb_v has 2 stages a rank; 1 stands for 2 there.
// Throws Error(kUsage) when the sizes make no schedule, and for the kinds that only a run settles (auto, custom).
Schedule make_schedule(ScheduleKind kind, int64_t pp_size, int64_t virtual_pipeline_size, int64_t num_micro_batches);
// Forwards only, for evaluation.
Schedule make_forward_schedule(int64_t pp_size, int64_t virtual_pipeline_size, int64_t num_micro_batches);
// The same where the stages lie as in `stage_ranks` (Schedule's; not empty).
Schedule make_forward_schedule(int64_t pp_size, const std::vector<int64_t>& stage_ranks, int64_t num_micro_batches);

// zb_v's table: down the ranks and up again. Empty with one rank, where every table is the same.
std::vector<int64_t> v_placement(int64_t pp_size);

std::string to_string(const Action& action);
Action parse_action(const std::string& text);   // throws Error(kUsage)
std::string to_text(const Schedule& schedule);  // one line a rank: "0F0 0SF0 ..."
// Inverse of to_text: header line "name pp stages micro_batches", then "ranks 0 1 1 0" when the stages lie otherwise than s % pp, then
// "in_flight 4 3 2 1" when limits are claimed. Throws Error(kUsage), which names the line: as "file:2" when `file` is given.
Schedule parse_schedule(const std::string& text, const std::string& file = "");

struct StageCost {
  double forward = 1.0, backward = 2.0, weight = 1.0;
};

struct ScheduleCost {
  // In any one unit, per virtual stage and micro-batch. A backward is that of inputs and weights together; in a schedule with deferred
  // weight gradients a W takes `weight` of it and a B the rest.
  double forward = 1.0, backward = 2.0, send = 0.0;
  double weight = 1.0;
  std::vector<StageCost> stages = {};  // [virtual stage]; empty = the three above for every stage
};

struct TimedAction {
  Action action;
  double begin = 0, end = 0;
};

struct ScheduleReport {
  bool complete = false;      // every forward and backward once, sends paired and in order, no deadlock, limits kept
  std::string problem;        // first thing wrong, empty when complete
  int64_t problem_rank = -1;  // whose list it is in; -1 = no single one's
  double makespan = 0;
  double bubble = 0;                               // idle share of all ranks' time until the last one is done
  std::vector<int64_t> peak_in_flight;             // [pp_rank] forwards whose backward is not done, at most
  std::vector<int64_t> peak_held;                  // [pp_rank] the same, those counted too whose deferred weight gradient is not done
  std::vector<std::vector<TimedAction>> timeline;  // [pp_rank]
};

// Replays the schedule with asynchronous sends and blocking receives. Never throws on a bad schedule: says so in `problem`.
ScheduleReport check_schedule(const Schedule& schedule, const ScheduleCost& cost = {});

std::string draw_text(const ScheduleReport& report);  // timeline, a row a rank
// A drawing of the timeline (SVG 1.1): a row a rank, a colour a kind, micro-batch numbers, a time axis, the bubble in the title.
std::string draw_svg(const Schedule& schedule, const ScheduleReport& report);

}  // namespace plait
