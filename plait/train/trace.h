// StepTrace: records the steps that train.profile asks for on every rank and writes them, once, as one Chrome trace file: JSON that
// Perfetto (ui.perfetto.dev) and chrome://tracing open, with a process for each machine and a row for each rank.
// Rank rule: every rank of the mesh makes it and calls the same methods in the same order; the last traced step's after_step(), or finish()
// when the run was shorter, is collective over the mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "plait/comm/mesh.h"
#include "plait/config/config.h"
#include "plait/tensor/profiler.h"

namespace plait {

class StepTrace {
 public:
  static constexpr int64_t kMaxEvents = 100000;  // of a rank; later ones are counted, not kept

  // Error(kUsage) when the run of `num_steps` steps has none of those asked for. `say`: called on rank 0 when the file is written.
  StepTrace(const Config& config, int64_t num_steps, StepProfiler& profiler, Mesh& mesh, std::function<void(const std::string&)> say);

  // Steps count from 1.
  void before_step(int64_t step);
  void after_step(int64_t step);
  // The run is over: writes what an earlier end left unwritten. Error(kResource, kUsage) when the file cannot be written.
  void finish();

 private:
  void write();

  ProfileConfig config_;
  StepProfiler& profiler_;
  Mesh& mesh_;
  std::function<void(const std::string&)> say_;
  int64_t num_traced_ = 0;
  bool done_;
};

// Creates the folder of train.profile.trace_file and checks that the file can be written there; nothing when it is empty. Error(kUsage).
void check_trace_file(const Config& config);

// Error(kUsage) when a trace is asked for and a run of `num_steps` steps has none of its steps.
void check_trace_steps(const Config& config, int64_t num_steps);

namespace detail {

// Where the clock of a rank stands: its machine (process of the trace) and what to add to its times to get those of rank 0.
struct TraceClock {
  int64_t machine_index = 0;
  int64_t offset_ns = 0, error_ns = 0;
};
// By rank, on every rank. `machine`: a name, then a line end, then what tells its clock apart (the boot); ranks of one boot share a clock,
// those of others are measured against rank 0 with messages. `now_ns`: this rank's clock. Collective over the mesh.
std::vector<TraceClock> trace_clocks(Mesh& mesh, const std::string& machine, const std::function<int64_t()>& now_ns);

// The events of one rank as JSON objects, each with a comma and a line end before it. Times in microseconds since `origin_ns`.
std::string events_json(const std::vector<TraceEvent>& events, int64_t rank, const TraceClock& clock, int64_t origin_ns);

}  // namespace detail

}  // namespace plait
