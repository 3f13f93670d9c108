#include "plait/optim/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "plait/base/error.h"
#include "plait/optim/flat_kernels.h"

namespace plait {
namespace {

Parameter parameter_of(const std::string& name, std::vector<int64_t> shape, bool decay) {
  Parameter p;
  p.name = name;
  p.global_shape = p.local_shape = std::move(shape);
  p.owner_stages = {0};
  p.decay = decay;
  return p;
}

// Two layers: weights decay, biases and norms do not.
void declare_small_model(ParameterStore& store, at::ScalarType type) {
  store.declare(parameter_of("embed.weight", {61, 8}, true));
  for (const char* layer : {"layer.0.", "layer.1."}) {
    store.declare(parameter_of(std::string(layer) + "norm.weight", {8}, false));
    store.declare(parameter_of(std::string(layer) + "norm.bias", {8}, false));
    store.declare(parameter_of(std::string(layer) + "fc.weight", {13, 8}, true));
    store.declare(parameter_of(std::string(layer) + "proj.weight", {8, 13}, true));
    store.declare(parameter_of(std::string(layer) + "fc.bias", {13}, false));
  }
  store.allocate(type, at::kCPU);
  store.initialize(1, true);
}

at::Tensor noise(const at::Tensor& like, int64_t seed) {
  at::Tensor i = at::arange(like.numel(), at::kDouble);
  return (at::sin(i * 12.9898 + static_cast<double>(seed) * 78.233) * 0.3).view(like.sizes());
}

void fill_gradients(ParameterStore& store, int64_t step) {
  int64_t index = 0;
  for (const auto& p : store.parameters()) p->gradient.copy_(noise(p->gradient, step * 100 + ++index));
}

OptimizerConfig adamw_config() {
  OptimizerConfig config;
  config.weight_decay = 0.1;
  return config;
}

// The formula, element by element in fp64, from the published algorithm.
struct Reference {
  std::vector<double> weight, m, v;
  explicit Reference(const Parameter& p) : m(static_cast<size_t>(p.numel)), v(static_cast<size_t>(p.numel)) {
    at::Tensor w = p.master.to(at::kDouble).contiguous();
    weight.assign(w.data_ptr<double>(), w.data_ptr<double>() + w.numel());
  }
  at::Tensor tensor(const Parameter& p) { return at::from_blob(weight.data(), p.local_shape, at::kDouble); }
};

double largest_error(const at::Tensor& got, const at::Tensor& want) {
  return ((got.to(at::kDouble) - want).abs().max() / want.abs().max()).item<double>();
}

void check_adamw(at::ScalarType type, double tolerance, double beta1, double beta2, double scale) {
  ParameterStore store;
  declare_small_model(store, type);
  OptimizerConfig config = adamw_config();
  config.beta1 = beta1;
  config.beta2 = beta2;
  auto optimizer = make_optimizer(store, config);
  std::vector<Reference> references;
  for (const auto& p : store.parameters()) references.emplace_back(*p);
  for (int64_t step = 1; step <= 6; ++step) {
    const double lr = 1e-2 * static_cast<double>(step);
    fill_gradients(store, step);
    for (size_t i = 0; i < references.size(); ++i) {
      Reference& r = references[i];
      const Parameter& p = *store.parameters()[i];
      at::Tensor gradient = p.gradient.to(at::kDouble).contiguous();
      for (size_t j = 0; j < r.weight.size(); ++j) {
        const double g = gradient.data_ptr<double>()[j] * scale;
        if (p.decay) r.weight[j] *= 1.0 - lr * config.weight_decay;
        r.m[j] = beta1 * r.m[j] + (1 - beta1) * g;
        r.v[j] = beta2 * r.v[j] + (1 - beta2) * g * g;
        const double m_hat = r.m[j] / (1 - std::pow(beta1, step)), v_hat = r.v[j] / (1 - std::pow(beta2, step));
        r.weight[j] -= lr * m_hat / (std::sqrt(v_hat) + config.eps);
      }
    }
    at::Tensor gradients = store.flat_gradients().clone();
    optimizer->step(lr, scale);
    EXPECT_TRUE(at::equal(gradients, store.flat_gradients()));
  }
  EXPECT_EQ(optimizer->num_updates(), 6);
  for (size_t i = 0; i < references.size(); ++i) {
    const Parameter& p = *store.parameters()[i];
    EXPECT_LT(largest_error(p.master, references[i].tensor(p)), tolerance) << p.name;
  }
}

TEST(Optimizer, AdamWIsTheFormula) {
  check_adamw(at::kDouble, 1e-14, 0.9, 0.999, 1.0);
  check_adamw(at::kDouble, 1e-14, 0.9, 0.999, 1.0 / 3);
  check_adamw(at::kDouble, 1e-14, 0.0, 0.99, 1.0);
  check_adamw(at::kDouble, 1e-14, 0.3, 0.5, 1.0);
  check_adamw(at::kFloat, 2e-6, 0.9, 0.999, 0.7);
  check_adamw(at::kFloat, 2e-6, 0.0, 0.99, 1.0);
}

// torch's own implementation, where it is exact (fp64, scale 1).
TEST(Optimizer, AdamWIsTorchs) {
  ParameterStore store;
  declare_small_model(store, at::kDouble);
  OptimizerConfig config = adamw_config();
  config.decay_all = true;
  auto optimizer = make_optimizer(store, config);
  at::Tensor weight = store.flat_masters().clone(), m = at::zeros_like(weight), v = at::zeros_like(weight);
  for (int64_t step = 1; step <= 5; ++step) {
    fill_gradients(store, step);
    std::vector<at::Tensor> w = {weight}, g = {store.flat_gradients().clone()}, ms = {m}, vs = {v},
                            steps = {at::full({}, step, at::kFloat)};
    at::_fused_adamw_(w, g, ms, vs, {}, steps, 1e-2, 0.9, 0.999, 0.1, 1e-8, false, false);
    optimizer->step(1e-2);
  }
  EXPECT_LT(largest_error(store.flat_masters(), weight), 1e-14);
  EXPECT_LT(largest_error(optimizer->state()[0].flat, m), 1e-14);
  EXPECT_LT(largest_error(optimizer->state()[1].flat, v), 1e-14);
}

void check_sgd(at::ScalarType type, double tolerance, double momentum, bool nesterov) {
  ParameterStore store;
  declare_small_model(store, type);
  OptimizerConfig config;
  config.type = OptimizerKind::kSGD;
  config.weight_decay = 0.05;
  config.momentum = momentum;
  config.nesterov = nesterov;
  auto optimizer = make_optimizer(store, config);
  std::vector<Reference> references;
  for (const auto& p : store.parameters()) references.emplace_back(*p);
  for (int64_t step = 1; step <= 4; ++step) {
    fill_gradients(store, step);
    for (size_t i = 0; i < references.size(); ++i) {
      Reference& r = references[i];
      const Parameter& p = *store.parameters()[i];
      at::Tensor gradient = p.gradient.to(at::kDouble).contiguous();
      for (size_t j = 0; j < r.weight.size(); ++j) {
        double g = gradient.data_ptr<double>()[j] * 0.5 + (p.decay ? config.weight_decay * r.weight[j] : 0.0);
        r.m[j] = step == 1 ? g : momentum * r.m[j] + g;
        r.weight[j] -= 0.1 * (momentum == 0.0 ? g : nesterov ? g + momentum * r.m[j] : r.m[j]);
      }
    }
    optimizer->step(0.1, 0.5);
  }
  EXPECT_EQ(optimizer->state().size(), momentum == 0.0 ? 0u : 1u);
  for (size_t i = 0; i < references.size(); ++i) {
    const Parameter& p = *store.parameters()[i];
    EXPECT_LT(largest_error(p.master, references[i].tensor(p)), tolerance) << p.name << " momentum " << momentum;
  }
}

TEST(Optimizer, SGDIsTheFormula) {
  for (auto [type, tolerance] : {std::pair(at::kDouble, 1e-14), std::pair(at::kFloat, 2e-6)}) {
    check_sgd(type, tolerance, 0.0, false);
    check_sgd(type, tolerance, 0.9, false);
    check_sgd(type, tolerance, 0.9, true);
  }
}

// With gradient 0, undecayed weights stay bit-equal and decayed ones shrink by (1 - lr * weight_decay) an update.
TEST(Optimizer, ZeroGradient) {
  for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSGD}) {
    ParameterStore store;
    declare_small_model(store, at::kFloat);
    OptimizerConfig config = adamw_config();
    config.type = kind;
    auto optimizer = make_optimizer(store, config);
    at::Tensor before = store.flat_masters().clone();
    for (int i = 0; i < 5; ++i) optimizer->step(0.01);
    for (const auto& p : store.parameters()) {
      at::Tensor old = before.narrow(0, p->offset, p->numel).view(p->local_shape);
      if (!p->decay) EXPECT_TRUE(at::equal(p->master, old)) << p->name;
      else EXPECT_LT(largest_error(p->master, old.to(at::kDouble) * std::pow(1.0 - 0.01 * 0.1, 5)), 1e-6) << p->name;
    }
  }
}

TEST(Optimizer, GoldenListOfDecay) {
  ParameterStore store;
  declare_small_model(store, at::kFloat);
  auto text = [&](bool decay_all) {
    OptimizerConfig config = adamw_config();
    config.decay_all = decay_all;
    std::string lines;
    for (const auto& [name, decay] : decay_list(store, config)) lines += cat(name, " ", decay, "\n");
    return lines;
  };
  std::ifstream file(std::string(PLAIT_TEST_DATA) + "/optim/decay_list.txt");
  ASSERT_TRUE(file.good());
  const std::string golden((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text(false), golden);
  EXPECT_EQ(text(true).find(" 0\n"), std::string::npos);
  // Neighbours of one kind are one span; spans cover every parameter with its own decay.
  auto optimizer = make_optimizer(store, adamw_config());
  EXPECT_EQ(optimizer->spans().size(), 6u);
  for (const auto& p : store.parameters()) {
    int found = 0;
    for (const DecaySpan& span : optimizer->spans())
      if (span.begin <= p->offset && p->offset + p->numel <= span.begin + span.size && (span.weight_decay > 0) == p->decay) ++found;
    EXPECT_EQ(found, 1) << p->name;
  }
}

// An element's update must not depend on where it lies: copies of a tied table have other offsets on other ranks.
TEST(Optimizer, SameBitsAtAnyOffset) {
  for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSGD})
    for (int64_t before : {1, 5, 40}) {
      ParameterStore plain, shifted;
      plain.declare(parameter_of("table", {61, 7}, true));
      plain.allocate(at::kFloat, at::kCPU);
      plain.initialize(3);
      shifted.declare(parameter_of("first", {before}, true));
      Parameter table = parameter_of("table", {61, 7}, true);
      table.follows_previous = true;
      shifted.declare(table);
      shifted.allocate(at::kFloat, at::kCPU);
      shifted.initialize(3);
      Parameter &a = *plain.parameters()[0], &b = *shifted.parameters()[1];
      ASSERT_TRUE(at::equal(a.master, b.master));
      OptimizerConfig config = adamw_config();
      config.type = kind;
      config.momentum = 0.9;
      auto first = make_optimizer(plain, config), second = make_optimizer(shifted, config);
      for (int64_t step = 1; step <= 5; ++step) {
        a.gradient.copy_(noise(a.gradient, step));
        b.gradient.copy_(noise(b.gradient, step));
        first->step(1e-2, 0.37);
        second->step(1e-2, 0.37);
      }
      EXPECT_TRUE(at::equal(a.master, b.master)) << before;
    }
}

// Every operation is rounded on its own (no contracted multiply-add), for every length: vector body and tail, any processor.
TEST(Optimizer, EveryOperationRoundsOnItsOwn) {
  detail::AdamWTerms t;
  t.gradient_scale = 0.37;
  t.decay = 0.999;
  t.step_size = 0.0123;
  t.bias2_sqrt = 0.31;
  for (int64_t n = 1; n <= 70; ++n) {
    const auto size = static_cast<size_t>(n);
    std::vector<float> w(size), g(size), m(size), v(size);
    for (int64_t i = 0; i < n; ++i) {
      w[i] = static_cast<float>(std::sin(3.1 * i + n)), g[i] = static_cast<float>(std::cos(1.7 * i + n));
      m[i] = static_cast<float>(0.1 * std::sin(0.9 * i)), v[i] = static_cast<float>(0.01 + 0.01 * std::cos(i));
    }
    std::vector<float> w2 = w, m2 = m, v2 = v, w3 = w, b3 = m;
    for (int64_t i = 0; i < n; ++i) {
      volatile float grad = g[i] * 0.37f, diff = grad - m2[i];
      volatile float step = static_cast<float>(1.0 - t.beta1) * diff, mean = m2[i] + step;
      volatile float scaled = static_cast<float>(1.0 - t.beta2) * grad, square = scaled * grad;
      volatile float old = v2[i] * static_cast<float>(t.beta2), variance = old + square;
      volatile float root = std::sqrt(variance), corrected = root / 0.31f, denominator = corrected + 1e-8f;
      volatile float up = 0.0123f * mean, ratio = up / denominator, decayed = w2[i] * 0.999f;
      m2[i] = mean, v2[i] = variance, w2[i] = decayed - ratio;
      volatile float sgd = g[i] * 0.37f, coupled = 0.05f * w3[i], whole = sgd + coupled;
      volatile float kept = 0.9f * b3[i], buffer = kept + whole, move = 0.1f * buffer;
      b3[i] = buffer, w3[i] = w3[i] - move;
    }
    std::vector<float> sgd_weight = w, sgd_buffer = m;
    detail::adamw_update(w.data(), g.data(), m.data(), v.data(), n, t);
    detail::sgd_update(sgd_weight.data(), g.data(), sgd_buffer.data(), n, {0.37, 0.05, 0.9, false, 0.1});
    ASSERT_EQ(w, w2) << n;
    ASSERT_EQ(m, m2) << n;
    ASSERT_EQ(v, v2) << n;
    ASSERT_EQ(sgd_weight, w3) << n;
    ASSERT_EQ(sgd_buffer, b3) << n;
  }
}

TEST(Optimizer, LowPrecisionWeightsAreRoundedMasters) {
  for (at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    ParameterStore store;
    declare_small_model(store, type);
    auto optimizer = make_optimizer(store, adamw_config());
    for (int64_t step = 1; step <= 3; ++step) {
      fill_gradients(store, step);
      optimizer->step(1e-3);
      EXPECT_TRUE(at::equal(store.flat_weights(), store.flat_masters().to(type)));
    }
    EXPECT_EQ(store.flat_masters().scalar_type(), at::kFloat);
    EXPECT_EQ(optimizer->state()[0].flat.scalar_type(), at::kFloat);
  }
}

// State copied over, the next updates are bit-equal.
TEST(Optimizer, StateIsComplete) {
  ParameterStore one, two;
  declare_small_model(one, at::kFloat);
  declare_small_model(two, at::kFloat);
  auto first = make_optimizer(one, adamw_config()), second = make_optimizer(two, adamw_config());
  for (int64_t step = 1; step <= 3; ++step) {
    fill_gradients(one, step);
    first->step(1e-2);
  }
  two.flat_masters().copy_(one.flat_masters());
  auto from = first->state(), to = second->state();
  for (size_t i = 0; i < from.size(); ++i) to[i].flat.copy_(from[i].flat);
  second->set_num_updates(first->num_updates());
  for (int64_t step = 4; step <= 6; ++step) {
    fill_gradients(one, step);
    fill_gradients(two, step);
    first->step(1e-2);
    second->step(1e-2);
  }
  EXPECT_TRUE(at::equal(one.flat_masters(), two.flat_masters()));
}

TEST(Optimizer, BadSettings) {
  ParameterStore store;
  declare_small_model(store, at::kFloat);
  auto refused = [&](auto change) {
    OptimizerConfig config;
    change(config);
    EXPECT_THROW(make_optimizer(store, config), Error);
  };
  refused([](OptimizerConfig& c) { c.weight_decay = -0.1; });
  refused([](OptimizerConfig& c) { c.beta1 = 1.0; });
  refused([](OptimizerConfig& c) { c.beta2 = std::nan(""); });
  refused([](OptimizerConfig& c) {
    c.type = OptimizerKind::kSGD;
    c.nesterov = true;
  });
}

}  // namespace
}  // namespace plait
