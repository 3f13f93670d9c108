#include "plait/plan/pipeline_plan.h"

#include <cstdio>
#include <fstream>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"

namespace plait {

namespace {

void check_sizes_of_file(const Schedule& schedule, int64_t pp_size, const Config& config) {
  const DistributedConfig& d = config.train.distributed;
  const std::string at = "train.distributed.";
  const std::string line = cat(d.schedule_file, ":1: ");
  if (schedule.pp_size != pp_size)
    throw_error(ExitCode::kUsage, line, "the schedule is for ", schedule.pp_size, " pipeline ranks, pipeline_parallel_size is ", pp_size,
                config.where(at + "pipeline_parallel_size"));
  if (schedule.num_micro_batches != d.gradient_accumulation_steps)
    throw_error(ExitCode::kUsage, line, "the schedule is for ", schedule.num_micro_batches,
                " micro-batches, gradient_accumulation_steps is ", d.gradient_accumulation_steps,
                config.where(at + "gradient_accumulation_steps"), ": both must be the same");
  int64_t chunks = schedule.num_stages / schedule.pp_size;
  if (d.virtual_pipeline_size != 1 && d.virtual_pipeline_size != chunks)
    throw_error(ExitCode::kUsage, at, "virtual_pipeline_size ", d.virtual_pipeline_size, config.where(at + "virtual_pipeline_size"),
                ": the schedule of ", d.schedule_file, " has ", chunks, " stages a rank; say ", chunks, " or leave it out");
}

}  // namespace

PipelinePlan::PipelinePlan(ScheduleKind kind, int64_t pp_size, int64_t stages_a_rank)
    : kind_(kind), pp_size_(pp_size), stages_a_rank_(stages_a_rank) {
  PLAIT_CHECK(kind != ScheduleKind::kAuto && kind != ScheduleKind::kCustom, "a plan of schedule ", enum_word(kind));
  if (kind != ScheduleKind::kZeroBubbleV) return;
  stages_a_rank_ = 2;
  stage_ranks_ = v_placement(pp_size);
}

PipelinePlan::PipelinePlan(Schedule custom)
    : kind_(ScheduleKind::kCustom), pp_size_(custom.pp_size), stages_a_rank_(custom.num_stages / custom.pp_size),
      stage_ranks_(custom.stage_ranks), custom_(std::move(custom)) {}

int64_t PipelinePlan::rank_of_stage(int64_t stage) const {
  return stage_ranks_.empty() ? stage % pp_size_ : stage_ranks_[static_cast<size_t>(stage)];
}

std::vector<int64_t> PipelinePlan::stages_of_rank(int64_t pp_rank) const {
  std::vector<int64_t> stages;
  for (int64_t s = 0; s < num_stages(); ++s)
    if (rank_of_stage(s) == pp_rank) stages.push_back(s);
  return stages;
}

Schedule PipelinePlan::training(int64_t num_micro_batches) const {
  if (kind_ != ScheduleKind::kCustom) return make_schedule(kind_, pp_size_, stages_a_rank_, num_micro_batches);
  PLAIT_CHECK(num_micro_batches == custom_.num_micro_batches, "a step of ", num_micro_batches, " micro-batches with a custom schedule of ",
              custom_.num_micro_batches);
  return custom_;
}

Schedule PipelinePlan::forward(int64_t num_micro_batches) const {
  if (!stage_ranks_.empty()) return make_forward_schedule(pp_size_, stage_ranks_, num_micro_batches);
  return make_forward_schedule(pp_size_, stages_a_rank_, num_micro_batches);
}

PipelinePlan plan_pipeline(int64_t pp_size, const Config& config) {
  const DistributedConfig& d = config.train.distributed;
  if (d.schedule == ScheduleKind::kCustom) {
    Schedule custom = read_schedule_file(
        d.schedule_file, cat("train.distributed.schedule_file ", d.schedule_file, config.where("train.distributed.schedule_file")));
    check_sizes_of_file(custom, pp_size, config);
    return PipelinePlan(std::move(custom));
  }
  // On one rank there is nothing to choose, no V, and no gap that a deferred weight gradient could fill.
  if ((d.schedule == ScheduleKind::kZeroBubbleV || d.schedule == ScheduleKind::kAuto) && pp_size == 1) return {ScheduleKind::k1F1B, 1, 1};
  return {d.schedule, pp_size, d.virtual_pipeline_size};
}

std::string read_schedule_text(const std::string& path, const std::string& setting) {
  constexpr size_t kMostBytes = size_t{256} << 20;
  std::ifstream file(path, std::ios::binary);
  std::string text, piece(size_t{1} << 16, '\0');
  while (file) {  // piece by piece: a pipe has no size
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece, 0, static_cast<size_t>(file.gcount()));
    if (text.size() > kMostBytes) throw_error(ExitCode::kUsage, setting, ": the file has more than ", kMostBytes, " bytes");
  }
  if (!file.eof() || file.bad()) throw_error(ExitCode::kUsage, setting, ": the file cannot be read");
  return text;
}

Schedule read_schedule_file(const std::string& path, const std::string& setting) {
  if (path.empty()) throw_error(ExitCode::kUsage, setting, " is empty: name a file in the text form of docs/schedules.md");
  Schedule schedule = parse_schedule(read_schedule_text(path, setting), path);
  if (schedule.forward_only())
    throw_error(ExitCode::kUsage, path, ":1: a schedule named forward has no backwards, so nothing can be trained with it");
  ScheduleReport report = check_schedule(schedule);
  if (!report.complete)
    throw_error(ExitCode::kUsage, path, ":", report.problem_rank < 0 ? 1 : report.problem_rank + 2,
                ": not a valid schedule: ", report.problem);
  return schedule;
}

std::string describe_plan(const PipelinePlan& plan, int64_t num_micro_batches) {
  Schedule schedule = plan.training(num_micro_batches);
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.1f %%", 100 * check_schedule(schedule).bubble);
  std::string name = plan.kind() == ScheduleKind::kCustom ? cat("custom (", schedule.name, ")") : enum_word(plan.kind());
  return cat("schedule ", name, " on ", plan.pp_size(), " pipeline ranks",
             plan.stages_a_rank() > 1 ? cat(" x ", plan.stages_a_rank(), " stages") : "", ", ", num_micro_batches,
             " micro-batches: predicted bubble ", percent, " (equal stages, backward twice a forward, free messages)");
}

}  // namespace plait
