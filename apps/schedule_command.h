// `plait schedule`: builds or reads a pipeline schedule, checks it, prints its actions, timeline and bubble, draws it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "plait/plan/schedule.h"

namespace plait {

struct ScheduleCommandOptions {
  std::string kind = "1f1b";   // gpipe | 1f1b | interleaved_1f1b | zb_h1 | zb_h2 | zb_v | forward
  int64_t stages = 1;          // pipeline ranks
  int64_t virtual_stages = 0;  // stages a rank; 0 = 2 for interleaved_1f1b and zb_v, else 1
  int64_t micro_batches = 1;
  std::string from;                               // a file in the text form, instead of the four above
  std::vector<double> forward, backward, weight;  // costs: one for all stages or one for each; empty = ScheduleCost's
  double send = 0;
  std::string svg;         // file to draw to; empty = none
  bool text_only = false;  // print the text form and nothing else
};

// Error(kUsage) when the sizes make no schedule, or a schedule read from a file is wrong; Error(kResource) when a file cannot be
// read or written.
void run_schedule_command(const ScheduleCommandOptions& options, std::ostream& out);

}  // namespace plait
