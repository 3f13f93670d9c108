// Stopping all ranks at the same step boundary when some of them were asked to, at whatever moment each got its signal.
#pragma once

#include <cstdint>
#include <string>

#include "plait/base/run_control.h"
#include "plait/comm/mesh.h"

namespace plait {

// The largest signal that any rank was sent so far, 0 when none was; the same number on every rank. One element over the world group,
// nothing for one rank or without a StopRequest. Rank rule: every rank of the mesh calls it, all with a StopRequest or none.
int agree_on_stop(const StopRequest* stop, const Mesh& mesh, at::Device device);

// While it lives, a signal waits for the next agree_on_stop() instead of ending the process.
class HeedStop {
 public:
  explicit HeedStop(StopRequest* stop) : stop_(stop) { set(true); }
  ~HeedStop() { set(false); }
  HeedStop(const HeedStop&) = delete;
  HeedStop& operator=(const HeedStop&) = delete;

 private:
  void set(bool value) {
    if (stop_) stop_->heeded.store(value);
  }
  StopRequest* stop_;
};

// "stopped after step 7 of 100 by signal 15 (Terminated)"
std::string stop_text(int signal, int64_t step, int64_t num_steps);

}  // namespace plait
