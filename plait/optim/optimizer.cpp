#include "plait/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "plait/base/error.h"
#include "plait/optim/flat_kernels.h"
#include "plait/tensor/parallel.h"

namespace plait {
namespace {

double decay_of(const Parameter& parameter, const OptimizerConfig& config) {
  return parameter.decay || config.decay_all ? config.weight_decay : 0.0;
}

void check_config(const OptimizerConfig& c) {
  auto check = [](bool ok, const char* setting, double value, const char* rule) {
    if (!ok) throw_error(ExitCode::kUsage, "train.optimizer.params.", setting, ": ", value, " is not allowed: ", rule);
  };
  check(c.weight_decay >= 0.0 && std::isfinite(c.weight_decay), "weight_decay", c.weight_decay, "it must be 0 or more");
  if (c.type != OptimizerKind::kSGD) {
    check(c.beta1 >= 0.0 && c.beta1 < 1.0, "betas[0]", c.beta1, "it must be in [0, 1); usual: 0.9");
    check(c.beta2 >= 0.0 && c.beta2 < 1.0, "betas[1]", c.beta2, "it must be in [0, 1); usual: 0.999");
    check(c.eps >= 0.0 && std::isfinite(c.eps), "eps", c.eps, "it must be 0 or more; usual: 1e-8");
  } else {
    check(c.momentum >= 0.0 && std::isfinite(c.momentum), "momentum", c.momentum, "it must be 0 or more");
    if (c.nesterov) check(c.momentum > 0.0, "momentum", c.momentum, "nesterov needs a momentum above 0");
  }
}

constexpr int64_t kGrain = 32768;  // elements a thread takes at least

// Elements do not depend on each other, so neither does the result on how threads share them.
template <class T>
void adamw_span(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                const detail::AdamWTerms& terms) {
  T *w = weight.data_ptr<T>(), *m = exp_avg.data_ptr<T>(), *v = exp_avg_sq.data_ptr<T>();
  const T* g = gradient.data_ptr<T>();
  parallel_ranges(0, weight.numel(), kGrain, [&](int64_t begin, int64_t end) {
    detail::adamw_update(w + begin, g + begin, m + begin, v + begin, end - begin, terms);
  });
}

template <class T>
void sgd_span(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& buffer, const detail::SGDTerms& terms) {
  T *w = weight.data_ptr<T>(), *b = buffer.defined() ? buffer.data_ptr<T>() : nullptr;
  const T* g = gradient.data_ptr<T>();
  parallel_ranges(0, weight.numel(), kGrain, [&](int64_t begin, int64_t end) {
    detail::sgd_update(w + begin, g + begin, b ? b + begin : nullptr, end - begin, terms);
  });
}

void fused_adamw(at::Tensor weight, at::Tensor gradient, at::Tensor exp_avg, at::Tensor exp_avg_sq, const at::Tensor& steps, double lr,
                 const OptimizerConfig& c, double weight_decay) {
  at::_fused_adamw_({weight}, {gradient}, {exp_avg}, {exp_avg_sq}, {}, {steps}, lr, c.beta1, c.beta2, weight_decay, c.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

void fused_adam(at::Tensor weight, at::Tensor gradient, at::Tensor exp_avg, at::Tensor exp_avg_sq, const at::Tensor& steps, double lr,
                const OptimizerConfig& c, double weight_decay) {
  at::_fused_adam_({weight}, {gradient}, {exp_avg}, {exp_avg_sq}, {}, {steps}, lr, c.beta1, c.beta2, weight_decay, c.eps,
                   /*amsgrad=*/false, /*maximize=*/false);
}

// AdamW and Adam; they differ in where the weight decay goes.
class AdamFamily : public Optimizer {
 public:
  AdamFamily(ParameterStore& store, const OptimizerConfig& config)
      : Optimizer(store, config), exp_avg_(at::zeros_like(store.flat_masters())), exp_avg_sq_(at::zeros_like(store.flat_masters())) {}

  std::vector<OptimizerState> state() const override { return {{"exp_avg", exp_avg_}, {"exp_avg_sq", exp_avg_sq_}}; }

 protected:
  void update(const DecaySpan& span, double lr, double gradient_scale) override {
    at::Tensor weight = store_.flat_masters().narrow(0, span.begin, span.size);
    at::Tensor gradient = store_.flat_gradients().narrow(0, span.begin, span.size);
    at::Tensor exp_avg = exp_avg_.narrow(0, span.begin, span.size), exp_avg_sq = exp_avg_sq_.narrow(0, span.begin, span.size);
    const double t = static_cast<double>(num_updates_);
    detail::AdamWTerms terms;
    terms.gradient_scale = gradient_scale;
    const bool coupled = config_.type == OptimizerKind::kAdam;
    if (coupled) terms.coupled_decay = span.weight_decay;
    else terms.decay = 1.0 - lr * span.weight_decay;
    terms.beta1 = config_.beta1;
    terms.beta2 = config_.beta2;
    terms.eps = config_.eps;
    terms.step_size = lr / (1.0 - std::pow(config_.beta1, t));
    terms.bias2_sqrt = std::sqrt(1.0 - std::pow(config_.beta2, t));
    if (!weight.is_cpu()) {
      // lr 0 still moves the moments; the fused kernel wants the step count as a tensor of the device.
      at::Tensor scaled = gradient_scale == 1.0 ? gradient : gradient.mul(gradient_scale);
      at::Tensor steps = at::full({}, t, weight.options().dtype(at::kFloat));
      (coupled ? fused_adam : fused_adamw)(weight, scaled, exp_avg, exp_avg_sq, steps, lr, config_, span.weight_decay);
    } else if (weight.scalar_type() == at::kDouble) {
      adamw_span<double>(weight, gradient, exp_avg, exp_avg_sq, terms);
    } else {
      adamw_span<float>(weight, gradient, exp_avg, exp_avg_sq, terms);
    }
  }

 private:
  at::Tensor exp_avg_, exp_avg_sq_;
};

class SGD : public Optimizer {
 public:
  SGD(ParameterStore& store, const OptimizerConfig& config) : Optimizer(store, config) {
    if (config.momentum != 0.0) momentum_buffer_ = at::zeros_like(store.flat_masters());
  }

  std::vector<OptimizerState> state() const override {
    if (!momentum_buffer_.defined()) return {};
    return {{"momentum_buffer", momentum_buffer_}};
  }

 protected:
  void update(const DecaySpan& span, double lr, double gradient_scale) override {
    at::Tensor weight = store_.flat_masters().narrow(0, span.begin, span.size);
    at::Tensor gradient = store_.flat_gradients().narrow(0, span.begin, span.size);
    at::Tensor buffer;
    if (momentum_buffer_.defined()) buffer = momentum_buffer_.narrow(0, span.begin, span.size);
    if (!weight.is_cpu()) {
      at::Tensor g = gradient.mul(gradient_scale).add_(weight, span.weight_decay);
      if (buffer.defined()) {
        buffer.mul_(config_.momentum).add_(g);
        g = config_.nesterov ? g.add_(buffer, config_.momentum) : buffer;
      }
      weight.add_(g, -lr);
      return;
    }
    detail::SGDTerms terms{gradient_scale, span.weight_decay, config_.momentum, config_.nesterov, lr};
    if (weight.scalar_type() == at::kDouble) sgd_span<double>(weight, gradient, buffer, terms);
    else sgd_span<float>(weight, gradient, buffer, terms);
  }

 private:
  at::Tensor momentum_buffer_;
};

}  // namespace

Optimizer::Optimizer(ParameterStore& store, const OptimizerConfig& config) : store_(store), config_(config) {
  for (const auto& parameter : store.parameters()) {
    if (parameter->numel == 0) continue;
    const double decay = decay_of(*parameter, config);
    const int64_t end = parameter->offset + parameter->numel;
    // Gaps between neighbours (alignment) hold zeros in all buffers, and zeros stay zeros.
    if (!spans_.empty() && spans_.back().weight_decay == decay) spans_.back().size = end - spans_.back().begin;
    else spans_.push_back({parameter->offset, parameter->numel, decay});
  }
}

void Optimizer::step(double lr, double gradient_scale) {
  at::NoGradGuard no_grad;
  ++num_updates_;
  for (const DecaySpan& span : spans_) update(span, lr, gradient_scale);
  store_.refresh_weights();
}

std::unique_ptr<Optimizer> make_optimizer(ParameterStore& store, const OptimizerConfig& config) {
  check_config(config);
  if (config.type == OptimizerKind::kSGD) return std::make_unique<SGD>(store, config);
  return std::make_unique<AdamFamily>(store, config);
}

std::vector<std::pair<std::string, double>> decay_list(const ParameterStore& store, const OptimizerConfig& config) {
  std::vector<std::pair<std::string, double>> list;
  for (const auto& parameter : store.parameters()) list.emplace_back(parameter->name, decay_of(*parameter, config));
  return list;
}

}  // namespace plait
