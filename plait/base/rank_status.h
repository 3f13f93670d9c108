// RankStatus: where a rank is, on a page that it shares with its launcher, so that the launcher can say at which step and in which
// phase a rank died even when the rank could say nothing any more. One writer (the rank), any readers; a torn read is one step old.
#pragma once

#include <atomic>
#include <cstdint>

namespace plait {

enum class RankPhase : int64_t { kStart, kConnect, kLoad, kStep, kEvaluate, kExport, kEnd };

inline const char* phase_name(RankPhase phase) {
  constexpr const char* kNames[] = {"start", "connecting", "loading", "training", "evaluation", "export", "end"};
  auto index = static_cast<uint64_t>(phase);
  return index < sizeof kNames / sizeof *kNames ? kNames[index] : "unknown";
}

struct RankStatus {
  std::atomic<int64_t> phase{static_cast<int64_t>(RankPhase::kStart)};
  std::atomic<int64_t> step{0};                 // 1-based, as in metrics.jsonl; 0 = before the first
  std::atomic<int64_t> dp{-1}, pp{-1}, tp{-1};  // the rank's coordinate, once it knows its layout

  void enter(RankPhase now) { phase.store(static_cast<int64_t>(now), std::memory_order_relaxed); }
  void enter_step(int64_t now) {
    step.store(now, std::memory_order_relaxed);
    enter(RankPhase::kStep);
  }
  void set_coordinate(int64_t dp_rank, int64_t pp_rank, int64_t tp_rank) {
    dp.store(dp_rank, std::memory_order_relaxed);
    pp.store(pp_rank, std::memory_order_relaxed);
    tp.store(tp_rank, std::memory_order_release);
  }
};
static_assert(std::atomic<int64_t>::is_always_lock_free, "the page is shared between processes");

}  // namespace plait
