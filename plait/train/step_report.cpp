#include "plait/train/step_report.h"

#include <ATen/ATen.h>

#include <cstdio>

#include "plait/base/error.h"

namespace plait {

namespace {

constexpr const char* kHeadings[] = {"step", "compute", "communication", "pipeline", "optimizer", "data", "other", "hidden communication"};

void append(std::string* line, const std::string& text, size_t width) {
  if (text.size() < width) line->append(width - text.size(), ' ');
  *line += text;
}

std::string table_line(const std::string& name, const std::vector<double>& milliseconds) {
  std::string line = name;
  line.resize(std::max<size_t>(line.size(), 20), ' ');
  for (size_t i = 0; i < milliseconds.size(); ++i) {
    char text[40];
    std::snprintf(text, sizeof text, "%.1f", milliseconds[i]);
    append(&line, text, std::string(kHeadings[i]).size() + 2);
  }
  return line;
}

}  // namespace

void StepReport::add(const StepTimes& t, double flops) {
  ++num_steps_;
  if (num_steps_ == 2) {
    sum_ = {};
    flops_ = 0;
    num_counted_ = 0;
  }
  ++num_counted_;
  sum_.step_seconds += t.step_seconds;
  sum_.compute_seconds += t.compute_seconds;
  sum_.communication_seconds += t.communication_seconds;
  sum_.pipeline_wait_seconds += t.pipeline_wait_seconds;
  sum_.optimizer_seconds += t.optimizer_seconds;
  sum_.data_seconds += t.data_seconds;
  sum_.other_seconds += t.other_seconds;
  sum_.hidden_communication_seconds += t.hidden_communication_seconds;
  flops_ += flops;
}

std::vector<double> StepReport::milliseconds() const {
  std::vector<double> values = {
      sum_.step_seconds,      sum_.compute_seconds, sum_.communication_seconds, sum_.pipeline_wait_seconds,
      sum_.optimizer_seconds, sum_.data_seconds,    sum_.other_seconds,         sum_.hidden_communication_seconds};
  for (double& value : values) value *= 1e3 / static_cast<double>(num_counted_);
  return values;
}

std::vector<std::string> StepReport::lines(const Mesh& mesh, at::Device device, double peak_flops, std::optional<double> bubble) const {
  if (num_steps_ == 0) return {};
  auto own = milliseconds();
  at::Tensor largest = at::zeros({static_cast<int64_t>(own.size())}, at::kDouble);
  std::copy(own.begin(), own.end(), largest.mutable_data_ptr<double>());
  largest = largest.to(device);
  mesh.world().all_reduce(largest, ReduceOp::kMax)->wait();
  largest = largest.cpu();
  std::string steps = num_steps_ == 1 ? "step 1" : cat("steps 2 to ", num_steps_), headings = cat("ms, ", steps);
  headings.resize(std::max<size_t>(headings.size(), 20), ' ');
  for (const char* heading : kHeadings) append(&headings, heading, std::string(heading).size() + 2);
  std::vector<std::string> lines = {headings, table_line("rank 0", own)};
  if (mesh.world().size() > 1) {
    const double* p = largest.const_data_ptr<double>();
    lines.push_back(table_line(cat("largest of ", mesh.world().size()), {p, p + own.size()}));
  }
  char text[160];
  if (bubble) {
    std::snprintf(text, sizeof text,
                  "bubble %.1f %% predicted by the schedule; rank 0 was in operations of the pipeline for %.1f %% of a step", 100 * *bubble,
                  100 * sum_.pipeline_wait_seconds / sum_.step_seconds);
    lines.push_back(text);
  }
  if (peak_flops > 0) {
    std::snprintf(text, sizeof text, "MFU %.1f %%: %.1f GFLOP/s of the model, matrix products alone reach %.1f here",
                  100 * flops_ / sum_.step_seconds / peak_flops, 1e-9 * flops_ / sum_.step_seconds, 1e-9 * peak_flops);
    lines.push_back(text);
  }
  return lines;
}

}  // namespace plait
