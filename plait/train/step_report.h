// StepReport: what the steps of a run took on average, part by part, on rank 0 and on the slowest rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/comm/mesh.h"
#include "plait/tensor/profiler.h"

namespace plait {

class StepReport {
 public:
  // flops: of the whole step, for MFU. The first step does not count when others follow: it builds what they use.
  void add(const StepTimes& times, double flops);

  // A small table of milliseconds a step: a line of headings, one of rank 0, one of the largest over all ranks (only with several).
  // peak_flops: what all ranks together can do, see measure_matrix_rate(); 0 = not measured, no MFU. Empty when no step was made.
  // bubble: share of a step's forwards and backwards in which the schedule leaves ranks idle; pipelines only.
  // Collective over the mesh; the same lines on every rank but for rank 0's own numbers.
  std::vector<std::string> lines(const Mesh& mesh, at::Device device, double peak_flops, std::optional<double> bubble) const;

 private:
  std::vector<double> milliseconds() const;

  int64_t num_steps_ = 0, num_counted_ = 0;
  StepTimes sum_;
  double flops_ = 0;
};

}  // namespace plait
