// Stopping all ranks at the same step boundary when some of them were asked to, at whatever moment each got its signal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "plait/base/run_control.h"
#include "plait/comm/mesh.h"

namespace plait {

// Which signal asks the run to stop, the same answer on every rank: the largest that any rank got so far, 0 when none did.
// Rank rule: every rank of the mesh calls the same functions in the same order, all with a StopRequest or none. A call is one message of
// two numbers over the world group; nothing for one rank or without a StopRequest.
class StopAgreement {
 public:
  StopAgreement(const StopRequest* stop, const Mesh& mesh, at::Device device) : stop_(stop), mesh_(mesh), device_(device) {}

  // After each step. Steps of a few milliseconds are not all asked about: 0 without a message until 50 ms have gone by (the ranks agree on
  // the number of steps that takes).
  int after_step();
  // With a message in any case.
  int now();

 private:
  using Clock = std::chrono::steady_clock;

  const StopRequest* stop_;
  const Mesh& mesh_;
  at::Device device_;
  Clock::time_point asked_ = Clock::now();
  int64_t steps_since_ = 0, steps_until_ = 1;
};

// While it lives, a signal waits for the next call of StopAgreement instead of ending the process.
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
