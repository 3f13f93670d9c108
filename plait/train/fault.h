// Fault injection, so that tests and users can see how a run ends when a rank fails: PLAIT_FAULT=ACTION:RANK:PLACE[:STEP] with
// ACTION kill | throw | overflow, PLACE start | step | export, STEP from 1 (with "step"). Without the variable nothing happens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plait {

struct Fault {
  std::string action;
  int64_t rank = -1;
  std::string place;
  int64_t step = 0;
};

// Error(kUsage) when the variable is set and malformed.
std::optional<Fault> read_fault();
// Kills this process (SIGKILL) or throws Error(kBug) when the fault is meant for this rank and place.
void apply_fault(const std::optional<Fault>& fault, int64_t rank, const std::string& place, int64_t step = 0);

}  // namespace plait
