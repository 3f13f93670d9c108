// Optimizer: updates the masters of a ParameterStore from its gradients, then refreshes the weights. Works on long contiguous spans of
// the flat buffers: neighbouring parameters of the same weight decay are one span. Moments are flat tensors of the masters' type and
// order, so a checkpoint can cut them by the same parameter records.
// Rank rule: no communication; given bit-equal masters and gradients, copies of a parameter stay bit-equal on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/config/config.h"
#include "plait/tensor/parameter.h"

namespace plait {

// A flat tensor of per-element state, aligned with flat_masters(). `name` as in PyTorch: exp_avg, exp_avg_sq, momentum_buffer.
struct OptimizerState {
  std::string name;
  at::Tensor flat;
};

// Elements [begin, begin + size) of the flat buffers that are updated with one weight decay.
struct DecaySpan {
  int64_t begin = 0;
  int64_t size = 0;
  double weight_decay = 0.0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update with learning rate `lr`; every gradient counts as gradient * gradient_scale (clip factor / loss scale). Gradients are
  // not changed. Ends with store.refresh_weights(). A skipped step is one where step() is not called: nothing moves.
  void step(double lr, double gradient_scale = 1.0);

  // Updates done so far; with state() all that a checkpoint needs.
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t num_updates) { num_updates_ = num_updates; }
  // The tensors themselves, not copies: a reader copies into them.
  virtual std::vector<OptimizerState> state() const = 0;
  const std::vector<DecaySpan>& spans() const { return spans_; }

 protected:
  Optimizer(ParameterStore& store, const OptimizerConfig& config);
  // Applies update number num_updates_ (1 for the first) to one span.
  virtual void update(const DecaySpan& span, double lr, double gradient_scale) = 0;

  ParameterStore& store_;
  OptimizerConfig config_;
  int64_t num_updates_ = 0;

 private:
  std::vector<DecaySpan> spans_;
};

// AdamW: decoupled weight decay, bias-corrected: torch.optim.AdamW's formula (weight *= 1 - lr * weight_decay first).
// Adam: torch.optim.Adam's: the same with coupled weight decay, added to the gradient (after its scale) before the moments.
// SGD: torch.optim.SGD's: weight decay is coupled (added to the gradient), dampening 0, first momentum = first gradient.
// `store` must be allocated and outlive the optimizer. Throws Error(kUsage): settings out of range.
std::unique_ptr<Optimizer> make_optimizer(ParameterStore& store, const OptimizerConfig& config);

// (name, weight decay in use) of every parameter, in order of declaration: what decays, for logs and tests.
std::vector<std::pair<std::string, double>> decay_list(const ParameterStore& store, const OptimizerConfig& config);

}  // namespace plait
