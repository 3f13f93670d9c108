// One pass over the layouts of the master invariant.
#pragma once

#include <optional>
#include <set>

#include "plait/base/error.h"
#include "tests/train/layout_case.h"

namespace plait::testing {

struct LayCheck {
  ModelShape (*shape)(int64_t num_layers) = t0_shape;
  Task task = Task::kTextGeneration;
  int64_t num_steps = 4;
  std::vector<int64_t> accumulation = {2};
  std::vector<MeshLayout> layouts = lay();
  std::optional<bool> sequence_parallel = std::nullopt;  // none: both, where there is a tensor axis
};

// Every layout against one process with one micro-batch; a pipeline of 8 gets 9 layers.
inline void check_lay(const LayCheck& check, const Config& base, double bound, double weight_bound) {
  Config config = base;
  config.task = check.task;
  std::map<int64_t, RunRecord> references;
  Samples samples = d0_samples(61);
  for (const auto& layout : check.layouts) {
    int64_t layers = layout.pp_size == 8 ? 9 : 5;
    if (!references.count(layers)) {
      config.train.distributed.gradient_accumulation_steps = 1;
      config.train.distributed.sequence_parallel = false;
      references[layers] = run_layout(config, check.shape(layers), {1, 1, 1}, samples, static_cast<int>(check.num_steps));
      double norm = references[layers].norms[0];
      EXPECT_NEAR(full_norm(references[layers].first_gradients, base.train.norm_type), norm, 1e-6 * norm);
    }
    for (int64_t ga : check.accumulation)
      for (bool sequence : {false, true}) {
        if (sequence && layout.tp_size == 1) continue;
        if (check.sequence_parallel && layout.tp_size > 1 && sequence != *check.sequence_parallel) continue;
        config.train.distributed.gradient_accumulation_steps = ga;
        config.train.distributed.sequence_parallel = sequence;
        expect_same_run(run_layout(config, check.shape(layers), layout, samples, static_cast<int>(check.num_steps)), references[layers],
                        bound, weight_bound, cat(name_of(layout), " ga ", ga, sequence ? " sequence parallel" : ""));
      }
  }
}

}  // namespace plait::testing
