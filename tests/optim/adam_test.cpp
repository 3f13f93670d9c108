// Adam with coupled weight decay against torch.optim.Adam, element for element.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plait/optim/flat_kernels.h"
#include "plait/optim/optimizer.h"

namespace plait {
namespace {

using Values = std::vector<double>;

Parameter vector_of(const std::string& name, int64_t size, bool decay) {
  Parameter p;
  p.name = name;
  p.global_shape = p.local_shape = {size};
  p.owner_stages = {0};
  p.decay = decay;
  return p;
}

void fill(const at::Tensor& to, const Values& from) {
  to.copy_(at::from_blob(const_cast<double*>(from.data()), {static_cast<int64_t>(from.size())}, at::kDouble));
}

double largest_error(const at::Tensor& got, const Values& want) {
  at::Tensor wide = got.to(at::kDouble).contiguous();
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) error = std::max(error, std::abs(wide.const_data_ptr<double>()[i] - want[i]));
  return error;
}

nlohmann::json read_golden() {
  std::ifstream file(PLAIT_TEST_DATA "/optim/adam.json");
  return nlohmann::json::parse(file);
}

OptimizerConfig golden_config(const nlohmann::json& golden) {
  OptimizerConfig config;
  config.type = OptimizerKind::kAdam;
  config.beta1 = golden["beta1"];
  config.beta2 = golden["beta2"];
  config.eps = golden["eps"];
  config.weight_decay = golden["weight_decay"];
  return config;
}

// The golden updates on a parameter that decays; returns the largest difference over all of them.
double difference_to_torch(const OptimizerConfig& config, bool decays, at::ScalarType type) {
  const nlohmann::json golden = read_golden();
  const auto start = golden["start"].get<Values>();
  ParameterStore store;
  store.declare(vector_of("first", 5, true));  // so that the golden one begins off a multiple of the vector width
  Parameter declared = vector_of("golden", static_cast<int64_t>(start.size()), decays);
  declared.follows_previous = true;
  Parameter& p = store.declare(declared);
  store.allocate(type, at::kCPU);
  fill(p.master, start);
  auto optimizer = make_optimizer(store, config);
  double worst = 0;
  for (size_t step = 0; step < golden["gradients"].size(); ++step) {
    fill(p.gradient, golden["gradients"][step].get<Values>());
    optimizer->step(golden["lr"][step], golden["scale"]);
    worst = std::max(worst, largest_error(p.master, golden["weights"][step].get<Values>()));
  }
  return worst;
}

TEST(Adam, IsTorchs) {
  const OptimizerConfig config = golden_config(read_golden());
  EXPECT_LT(difference_to_torch(config, true, at::kDouble), 1e-14);
  EXPECT_LT(difference_to_torch(config, true, at::kFloat), 1e-6);
  // The decay is what makes the difference to AdamW, and it counts before the moments.
  OptimizerConfig decoupled = config;
  decoupled.type = OptimizerKind::kAdamW;
  EXPECT_GT(difference_to_torch(decoupled, true, at::kDouble), 1e-2);
}

TEST(Adam, DecaysWhatAdamWDecays) {
  OptimizerConfig config = golden_config(read_golden());
  EXPECT_GT(difference_to_torch(config, false, at::kDouble), 1e-2);  // biases and norms do not
  config.decay_all = true;
  EXPECT_LT(difference_to_torch(config, false, at::kDouble), 1e-14);
}

// Without weight decay it is AdamW, bit for bit.
TEST(Adam, WithoutDecayIsAdamW) {
  std::vector<at::Tensor> weights;
  for (OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    const nlohmann::json golden = read_golden();
    ParameterStore store;
    Parameter& p = store.declare(vector_of("w", 41, true));
    store.allocate(at::kFloat, at::kCPU);
    fill(p.master, golden["start"].get<Values>());
    OptimizerConfig config = golden_config(golden);
    config.type = kind;
    config.weight_decay = 0;
    auto optimizer = make_optimizer(store, config);
    for (size_t step = 0; step < 6; ++step) {
      fill(p.gradient, golden["gradients"][step].get<Values>());
      optimizer->step(1e-2, 0.5);
    }
    weights.push_back(p.master.clone());
  }
  EXPECT_TRUE(at::equal(weights[0], weights[1]));
}

// Every operation is rounded on its own, as in AdamW's kernel: vector body and tail, any processor.
TEST(Adam, EveryOperationRoundsOnItsOwn) {
  detail::AdamWTerms t;
  t.gradient_scale = 0.37;
  t.coupled_decay = 0.05;
  t.step_size = 0.0123;
  t.bias2_sqrt = 0.31;
  for (int64_t n = 1; n <= 70; ++n) {
    const auto size = static_cast<size_t>(n);
    std::vector<float> w(size), g(size), m(size), v(size);
    for (size_t i = 0; i < size; ++i) {
      const double x = static_cast<double>(i);
      w[i] = static_cast<float>(std::sin(3.1 * x + 1)), g[i] = static_cast<float>(std::cos(1.7 * x + 2));
      m[i] = static_cast<float>(0.1 * std::sin(0.9 * x)), v[i] = static_cast<float>(0.01 + 0.01 * std::cos(x));
    }
    std::vector<float> w2 = w, m2 = m, v2 = v;
    for (size_t i = 0; i < size; ++i) {
      volatile float scaled_gradient = g[i] * 0.37f, share = 0.05f * w2[i], grad = scaled_gradient + share, diff = grad - m2[i];
      volatile float step = static_cast<float>(1.0 - t.beta1) * diff, mean = m2[i] + step;
      volatile float scaled = static_cast<float>(1.0 - t.beta2) * grad, square = scaled * grad;
      volatile float old = v2[i] * static_cast<float>(t.beta2), variance = old + square;
      volatile float root = std::sqrt(variance), corrected = root / 0.31f, denominator = corrected + 1e-8f;
      volatile float up = 0.0123f * mean, ratio = up / denominator;
      m2[i] = mean, v2[i] = variance, w2[i] = w2[i] - ratio;
    }
    detail::adamw_update(w.data(), g.data(), m.data(), v.data(), n, t);
    ASSERT_EQ(w, w2) << n;
    ASSERT_EQ(m, m2) << n;
    ASSERT_EQ(v, v2) << n;
  }
}

}  // namespace
}  // namespace plait
