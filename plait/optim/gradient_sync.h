// GradientSync: the gradient reductions beyond the data axis, in one fixed order, after the data axis is reduced:
//  1. over the tensor axis, one packed message: parameters of which each tensor rank has a part of the gradient (sequence parallel), and
//     KV shards that lie on several neighbouring tensor ranks (each shard is summed over its own replicas only);
//  2. over the pipeline axis, point to point: parameters tied across two stages; both owners add the other's gradient (a + b = b + a, so
//     their copies are bit-equal).
// Reaches sums in the gradients' own type (fp32 or fp64). Owns its pack buffers, which live as long as it does.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "plait/comm/mesh.h"
#include "plait/tensor/parameter.h"

namespace plait {

struct GradientSyncOptions {
  // Pipeline coordinate of the rank that holds the other copy of this rank's tied parameters; -1 = this rank has none.
  int64_t tied_peer = -1;
  int tag = 7001;  // of the exchange; no other point-to-point message over the pipeline group may use it
};

class GradientSync {
 public:
  // `store` must be allocated and outlive this object, `mesh` too. No communication.
  GradientSync(ParameterStore& store, const Mesh& mesh, GradientSyncOptions options);

  // Rank rule: all ranks of a tensor group call it together; both owners of tied parameters call it in the same step.
  void sync();

 private:
  void sync_tensor_axis();
  void exchange_tied();

  const Mesh& mesh_;
  GradientSyncOptions options_;
  std::vector<Parameter*> partial_, replicated_kv_, tied_;
  at::Tensor packed_, received_;
  std::vector<at::Tensor> kv_slots_;  // views of packed_: [kv_shards, numel] of each replicated KV parameter
};

}  // namespace plait
