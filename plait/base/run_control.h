// RunControl: what a rank tells whoever watches it, and what it is told from outside while it runs: its status page and a request to stop.
// Both may be absent (a program of one's own). The pages outlive the run; one watcher thread writes the request, the run reads it.
#pragma once

#include <atomic>

#include "plait/base/rank_status.h"

namespace plait {

// A signal that asks the run to end at the next step boundary. While nobody heeds it, a signal ends the process at once.
struct StopRequest {
  std::atomic<int> signal{0};       // 0 = none
  std::atomic<bool> heeded{false};  // the run is in its training loop and looks at `signal` between steps
};

struct RunControl {
  RankStatus* status = nullptr;
  StopRequest* stop = nullptr;  // on all ranks or on none: whether to stop is agreed upon by a collective

  void enter(RankPhase phase) const {
    if (status) status->enter(phase);
  }
  void enter_step(int64_t step) const {
    if (status) status->enter_step(step);
  }
};

}  // namespace plait
