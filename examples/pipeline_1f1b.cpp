// 1F1B (one forward, one backward): prints the schedule of 2 stages and 3 micro-batches, then runs it over a tiny random model on 2 thread
// ranks and compares the loss with 1 rank. A schedule is data; the executor runs whatever actions stand in it.
#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "plait/comm/launch.h"
#include "plait/data/micro_batches.h"
#include "plait/train/parallelize.h"

namespace {

constexpr int64_t kMicroBatches = 3;

plait::ModelShape tiny_gpt2() {
  plait::ModelShape shape;
  shape.family = plait::Family::kGpt2;
  shape.model_type = "gpt2";
  shape.vocab_size = 31;
  shape.hidden_size = 16;
  shape.num_layers = 3;
  shape.num_heads = shape.num_kv_heads = 2;
  shape.head_size = 8;
  shape.ffn_size = 32;
  shape.max_positions = 12;
  shape.tied_embeddings = true;  // the first and the last stage each hold a copy of the table
  return shape;
}

// Rows of unequal length: they lie one after the other in a micro-batch, without padding.
std::vector<plait::MicroBatch> micro_batches() {
  std::vector<plait::MicroBatch> batches;
  for (int64_t m = 0; m < kMicroBatches; ++m) {
    std::vector<std::vector<int32_t>> ids;
    for (int64_t length : {4 + m, 9 - 2 * m}) {
      ids.emplace_back();
      for (int64_t t = 0; t < length; ++t) ids.back().push_back(static_cast<int32_t>((7 * m + 3 * t + length) % 31));
    }
    std::vector<plait::TokenRow> rows(ids.size());
    for (size_t r = 0; r < ids.size(); ++r) rows[r].ids = ids[r];
    batches.push_back(plait::make_micro_batch(rows, plait::Task::kTextGeneration));
  }
  return batches;
}

// Mean loss over all targets, after one pass of the schedule, backwards included.
double loss_on(int64_t stages) {
  plait::Config config;
  config.task = plait::Task::kTextGeneration;
  config.train.dtype = plait::DType::kFloat64;
  config.train.distributed.pipeline_parallel_size = stages;
  double loss = 0;
  plait::run_thread_ranks({/*dp_size=*/1, stages, /*tp_size=*/1}, [&](plait::Mesh& mesh) {
    auto model = plait::parallelize(config, tiny_gpt2(), {config.task}, mesh, at::kCPU);
    std::vector<plait::MicroBatch> batches = micro_batches();
    double targets = 0;
    for (const auto& batch : batches) targets += static_cast<double>(batch.num_targets);
    plait::PipelineRun run;
    run.micro_batches = &batches;
    run.gradient_seed = 1 / targets;
    auto schedule = plait::make_schedule(plait::ScheduleKind::k1F1B, stages, 1, kMicroBatches);
    at::Tensor sum = model->executor->run(schedule, run);
    if (mesh.pipeline().rank() == stages - 1) loss = sum.item<double>() / targets;
  });
  return loss;
}

}  // namespace

int main() {
  auto schedule = plait::make_schedule(plait::ScheduleKind::k1F1B, /*pp_size=*/2, /*virtual_pipeline_size=*/1, kMicroBatches);
  auto report = plait::check_schedule(schedule);
  std::printf("%s\n%s\nbubble %.0f %%, in flight at most:", to_text(schedule).c_str(), draw_text(report).c_str(), 100 * report.bubble);
  for (int64_t forwards : report.peak_in_flight) std::printf(" %d", static_cast<int>(forwards));

  double one = loss_on(1), two = loss_on(2);
  std::printf("\n2 stages against 1: loss %.12f and %.12f\n", two, one);
  return report.complete && std::abs(two - one) < 1e-12 * one ? 0 : 1;
}
