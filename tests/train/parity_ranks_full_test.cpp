// The whole product of the master invariant (label ranks-full); parity_ranks_test.cpp holds the part that runs every time.
#include <gtest/gtest.h>

#include <limits>

#include "tests/train/lay_check.h"

namespace plait::testing {
namespace {

Config sgd(DType dtype) { return parity_config(dtype, OptimizerKind::kSGD, 0); }
Config adam(DType dtype) { return parity_config(dtype, OptimizerKind::kAdamW, 0.5); }

TEST(ParityFull, T0Fp64AdamClipped) { check_lay({}, adam(DType::kFloat64), 1e-10, 1e-8); }
TEST(ParityFull, T0Fp64Adam) { check_lay({}, parity_config(DType::kFloat64, OptimizerKind::kAdamW, 0), 1e-10, 1e-8); }
TEST(ParityFull, T0Fp64SgdClipped) { check_lay({}, parity_config(DType::kFloat64, OptimizerKind::kSGD, 0.5), 1e-10, 1e-10); }
TEST(ParityFull, T0Fp64SgdAccumulation) { check_lay({.num_steps = 2, .accumulation = {1, 3, 5}}, sgd(DType::kFloat64), 1e-10, 1e-10); }
TEST(ParityFull, T0bFp64Sgd) { check_lay({.shape = t0b_shape}, sgd(DType::kFloat64), 1e-10, 1e-10); }
TEST(ParityFull, T0bFp64AdamClipped) { check_lay({.shape = t0b_shape}, adam(DType::kFloat64), 1e-10, 1e-8); }
TEST(ParityFull, BertFp64Sgd) {
  check_lay({.shape = tiny_bert_shape, .task = Task::kTextClassification}, sgd(DType::kFloat64), 1e-10, 1e-10);
}
TEST(ParityFull, BertFp64AdamClipped) {
  check_lay({.shape = tiny_bert_shape, .task = Task::kTextClassification}, adam(DType::kFloat64), 1e-10, 1e-8);
}
TEST(ParityFull, T0Fp32Sgd) { check_lay({.accumulation = {1, 2}}, sgd(DType::kFloat32), 1e-5, 1e-5); }
TEST(ParityFull, T0bFp32Sgd) { check_lay({.shape = t0b_shape}, sgd(DType::kFloat32), 1e-5, 1e-5); }
// AdamW moves an element whose gradient is rounding noise by up to lr a step, so the weights of fp32 are held to that only.
TEST(ParityFull, T0Fp32AdamClipped) { check_lay({}, adam(DType::kFloat32), 1e-5, 0.1); }
TEST(ParityFull, T0Fp64InfinityNorm) {
  Config config = adam(DType::kFloat64);
  config.train.norm_type = std::numeric_limits<double>::infinity();
  check_lay({}, config, 1e-10, 1e-8);
}

}  // namespace
}  // namespace plait::testing
