// PipelinePlan: where the virtual stages of a run lie and what schedule its steps and its evaluations follow. Made once from the
// settings; the model, the executor's callers and the losses' owner all read it, so that nobody else knows how stages are placed.
// Every rank makes the same plan; no communication. A custom plan has read its file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/plan/schedule.h"

namespace plait {

class PipelinePlan {
 public:
  PipelinePlan() = default;  // one rank, one stage
  // A kind that make_schedule knows; zb_v has 2 stages a rank whatever `stages_a_rank` says.
  PipelinePlan(ScheduleKind kind, int64_t pp_size, int64_t stages_a_rank);
  // A checked schedule for training steps of its own number of micro-batches.
  explicit PipelinePlan(Schedule custom);

  ScheduleKind kind() const { return kind_; }
  int64_t pp_size() const { return pp_size_; }
  int64_t num_stages() const { return pp_size_ * stages_a_rank_; }
  int64_t stages_a_rank() const { return stages_a_rank_; }
  const std::vector<int64_t>& stage_ranks() const { return stage_ranks_; }  // Schedule's
  int64_t rank_of_stage(int64_t stage) const;
  int64_t last_stage_rank() const { return rank_of_stage(num_stages() - 1); }  // where the loss is
  std::vector<int64_t> stages_of_rank(int64_t pp_rank) const;                  // ascending

  Schedule training(int64_t num_micro_batches) const;
  Schedule forward(int64_t num_micro_batches) const;

 private:
  ScheduleKind kind_ = ScheduleKind::k1F1B;
  int64_t pp_size_ = 1, stages_a_rank_ = 1;
  std::vector<int64_t> stage_ranks_;
  Schedule custom_;
};

// The plan of these settings on `pp_size` pipeline ranks. Reads schedule_file of schedule custom and checks it; schedule auto must be
// settled before (choose_schedule). Error(kUsage): a file that is wrong, named with line, rank and action, or that is for other sizes.
PipelinePlan plan_pipeline(int64_t pp_size, const Config& config);

// What the file says, at most 256 MiB. Error(kUsage) when it cannot be read or is larger. `setting`: who names it.
std::string read_schedule_text(const std::string& path, const std::string& setting);

// The file's schedule, complete by check_schedule. Error(kUsage): "FILE:LINE: rank R: 0SF1 is missing: ...".
Schedule read_schedule_file(const std::string& path, const std::string& setting);

// "schedule 1f1b on 2 pipeline ranks, 4 micro-batches: predicted bubble 20.0 % (equal stages, backward twice a forward, free messages)".
std::string describe_plan(const PipelinePlan& plan, int64_t num_micro_batches);

}  // namespace plait
