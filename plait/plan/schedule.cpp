#include "plait/plan/schedule.h"

#include <algorithm>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/plan/schedule_orders.h"

namespace plait {

namespace {

// A larger schedule is a slip of the keyboard; it would also not fit in memory.
constexpr int64_t kMaxCells = int64_t{1} << 24;

void check_sizes(int64_t pp_size, int64_t chunks, int64_t num_micro_batches) {
  auto positive = [](const char* what, int64_t value) {
    if (value < 1) throw_error(ExitCode::kUsage, what, " ", value, ": must be at least 1");
  };
  positive("pipeline_parallel_size", pp_size);
  positive("virtual_pipeline_size", chunks);
  positive("number of micro-batches", num_micro_batches);
  if (pp_size > kMaxCells || chunks > kMaxCells / pp_size || num_micro_batches > kMaxCells / (pp_size * chunks))
    throw_error(ExitCode::kUsage, "a schedule of ", pp_size, " ranks x ", chunks, " stages a rank x ", num_micro_batches,
                " micro-batches is too large: the product must be at most ", kMaxCells);
}

Schedule empty_schedule(std::string name, int64_t pp_size, int64_t chunks, int64_t num_micro_batches) {
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.pp_size = pp_size;
  schedule.num_stages = pp_size * chunks;
  schedule.num_micro_batches = num_micro_batches;
  return schedule;
}

// Forwards of a rank that may wait for their backward.
int64_t in_flight_limit(ScheduleKind kind, int64_t pp_size, int64_t chunks, int64_t m, int64_t rank) {
  switch (kind) {
    case ScheduleKind::kGPipe: return m;
    case ScheduleKind::k1F1B: return std::min(m, pp_size - rank);
    case ScheduleKind::kInterleaved1F1B: return detail::interleaved_in_flight(pp_size, chunks, m, rank);
    case ScheduleKind::kZeroBubbleH1: return detail::zero_bubble_in_flight(pp_size, m, rank, false);
    case ScheduleKind::kZeroBubbleH2: return detail::zero_bubble_in_flight(pp_size, m, rank, true);
    case ScheduleKind::kZeroBubbleV: return detail::zero_bubble_v_in_flight(pp_size, m);
    case ScheduleKind::kAuto:
    case ScheduleKind::kCustom: break;
  }
  return m;
}

}  // namespace

Schedule make_schedule(ScheduleKind kind, int64_t pp_size, int64_t virtual_pipeline_size, int64_t num_micro_batches) {
  int64_t m = num_micro_batches;
  check_sizes(pp_size, virtual_pipeline_size, m);
  bool interleaved = kind == ScheduleKind::kInterleaved1F1B, fill_warm_up = kind == ScheduleKind::kZeroBubbleH2;
  bool v_shaped = kind == ScheduleKind::kZeroBubbleV;
  if (v_shaped && virtual_pipeline_size > 2)
    throw_error(ExitCode::kUsage, "virtual_pipeline_size ", virtual_pipeline_size, " with schedule zb_v: it has 2 stages a rank");
  if (v_shaped) virtual_pipeline_size = 2;
  if (interleaved && virtual_pipeline_size < 2)
    throw_error(ExitCode::kUsage, "schedule interleaved_1f1b with virtual_pipeline_size ", virtual_pipeline_size,
                ": needs at least 2 stages a rank (with 1, take schedule 1f1b)");
  if (!interleaved && !v_shaped && virtual_pipeline_size > 1)
    throw_error(ExitCode::kUsage, "virtual_pipeline_size ", virtual_pipeline_size, " with schedule ", enum_word(kind),
                ": must be 1 there, or take schedule interleaved_1f1b");
  Schedule schedule = empty_schedule(enum_word(kind), pp_size, virtual_pipeline_size, m);
  switch (kind) {
    case ScheduleKind::kGPipe: detail::insert_messages(schedule, detail::gpipe_order(pp_size, m)); break;
    case ScheduleKind::k1F1B: detail::insert_messages(schedule, detail::one_f_one_b_order(pp_size, m)); break;
    case ScheduleKind::kInterleaved1F1B:
      detail::insert_messages(schedule, detail::interleaved_order(pp_size, virtual_pipeline_size, m));
      break;
    case ScheduleKind::kZeroBubbleH1:
    case ScheduleKind::kZeroBubbleH2: detail::insert_messages(schedule, detail::zero_bubble_order(pp_size, m, fill_warm_up)); break;
    case ScheduleKind::kZeroBubbleV:
      schedule.stage_ranks = v_placement(pp_size);
      detail::insert_messages(schedule, detail::zero_bubble_v_order(pp_size, m));
      break;
    case ScheduleKind::kAuto: throw_error(ExitCode::kUsage, "schedule auto: only a run settles it, by its model and memory; name a kind");
    case ScheduleKind::kCustom:
      throw_error(ExitCode::kUsage, "schedule custom: its actions stand in a file (train.distributed.schedule_file)");
  }
  for (int64_t rank = 0; rank < pp_size; ++rank) {
    schedule.in_flight_limit.push_back(in_flight_limit(kind, pp_size, virtual_pipeline_size, m, rank));
  }
  return schedule;
}

Schedule make_forward_schedule(int64_t pp_size, int64_t virtual_pipeline_size, int64_t num_micro_batches) {
  check_sizes(pp_size, virtual_pipeline_size, num_micro_batches);
  Schedule schedule = empty_schedule("forward", pp_size, virtual_pipeline_size, num_micro_batches);
  detail::insert_messages(schedule, detail::forward_order(pp_size, virtual_pipeline_size, num_micro_batches));
  return schedule;
}

Schedule make_forward_schedule(int64_t pp_size, const std::vector<int64_t>& stage_ranks, int64_t num_micro_batches) {
  auto num_stages = static_cast<int64_t>(stage_ranks.size());
  PLAIT_CHECK(pp_size >= 1 && num_stages >= pp_size && num_stages % pp_size == 0, num_stages, " stages on ", pp_size, " ranks");
  check_sizes(pp_size, num_stages / pp_size, num_micro_batches);
  Schedule schedule = empty_schedule("forward", pp_size, num_stages / pp_size, num_micro_batches);
  schedule.stage_ranks = stage_ranks;
  detail::insert_messages(schedule, detail::placed_forward_order(pp_size, stage_ranks, num_micro_batches));
  return schedule;
}

std::vector<int64_t> v_placement(int64_t pp_size) {
  std::vector<int64_t> ranks;
  if (pp_size == 1) return ranks;
  for (int64_t s = 0; s < 2 * pp_size; ++s) ranks.push_back(s < pp_size ? s : 2 * pp_size - 1 - s);
  return ranks;
}

int64_t Schedule::chunk_of_stage(int64_t stage) const {
  int64_t chunk = 0;
  for (int64_t s = 0; s < stage; ++s) chunk += rank_of_stage(s) == rank_of_stage(stage);
  return chunk;
}

}  // namespace plait
