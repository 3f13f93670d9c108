// The master invariant: every layout computes what one process computes.
#include <gtest/gtest.h>

#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

std::string name_of(const MeshLayout& l) { return cat("dp", l.dp_size, "-pp", l.pp_size, "-tp", l.tp_size); }

int64_t layers_for(const MeshLayout& l) { return l.pp_size == 8 ? 9 : 5; }

void check_lay(ModelShape (*shape)(int64_t), const Config& base, double bound, double weight_bound, Task task = Task::kTextGeneration) {
  Config config = base;
  config.task = task;
  config.train.distributed.gradient_accumulation_steps = 2;
  std::map<int64_t, RunRecord> references;
  Samples samples = d0_samples(61);
  for (const auto& layout : lay()) {
    int64_t layers = layers_for(layout);
    if (!references.count(layers)) {
      Config plain = config;
      plain.train.distributed.gradient_accumulation_steps = 1;
      references[layers] = run_layout(plain, shape(layers), {1, 1, 1}, samples, 4);
    }
    for (bool sequence : {false, true}) {
      if (sequence && layout.tp_size == 1) continue;
      config.train.distributed.sequence_parallel = sequence;
      expect_same_run(run_layout(config, shape(layers), layout, samples, 4), references[layers], bound, weight_bound,
                      name_of(layout) + (sequence ? " sequence parallel" : ""));
    }
  }
}

TEST(Parity, T0Fp64Sgd) { check_lay(t0_shape, parity_config(DType::kFloat64, OptimizerKind::kSGD, 0), 1e-10, 1e-10); }
TEST(Parity, T0Fp64AdamClipped) { check_lay(t0_shape, parity_config(DType::kFloat64, OptimizerKind::kAdamW, 0.5), 1e-10, 1e-8); }
TEST(Parity, T0bFp64Sgd) { check_lay(t0b_shape, parity_config(DType::kFloat64, OptimizerKind::kSGD, 0), 1e-10, 1e-10); }
TEST(Parity, BertFp64Sgd) {
  check_lay(tiny_bert_shape, parity_config(DType::kFloat64, OptimizerKind::kSGD, 0), 1e-10, 1e-10, Task::kTextClassification);
}
TEST(Parity, T0Fp32Sgd) { check_lay(t0_shape, parity_config(DType::kFloat32, OptimizerKind::kSGD, 0), 1e-5, 1e-5); }

}  // namespace
}  // namespace plait::testing
