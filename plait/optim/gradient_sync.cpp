#include "plait/optim/gradient_sync.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "plait/base/error.h"

namespace plait {

GradientSync::GradientSync(ParameterStore& store, const Mesh& mesh, GradientSyncOptions options) : mesh_(mesh), options_(options) {
  const int64_t tp_size = mesh.tensor().size();
  int64_t packed = 0, tied = 0;
  for (const auto& p : store.parameters()) {
    if (p->partial_over_tp && tp_size > 1) {
      partial_.push_back(p.get());
      packed += p->numel;
    }
    if (p->kv_replicas > 1) {
      PLAIT_CHECK(p->kv_replicas * p->kv_shards == tp_size, p->name, ": ", p->kv_shards, " shards x ", p->kv_replicas, " replicas on ",
                  tp_size, " tensor ranks");
      PLAIT_CHECK(!p->partial_over_tp, p->name, " is both sharded and partial over the tensor ranks");
      replicated_kv_.push_back(p.get());
      packed += p->numel * p->kv_shards;
    }
    if (p->tied_across_stages) {
      PLAIT_CHECK(options.tied_peer >= 0 && options.tied_peer < mesh.pipeline().size() && options.tied_peer != mesh.pipeline().rank(),
                  p->name, " is tied across stages, its other owner is given as pipeline rank ", options.tied_peer);
      tied_.push_back(p.get());
      tied += p->numel;
    }
  }
  const auto type = store.flat_gradients().options();
  if (packed > 0) packed_ = at::zeros({packed}, type);
  if (tied > 0) received_ = at::empty({tied}, type);
  int64_t offset = 0;
  for (Parameter* p : partial_) offset += p->numel;
  for (Parameter* p : replicated_kv_) {
    kv_slots_.push_back(packed_.narrow(0, offset, p->numel * p->kv_shards).view({p->kv_shards, p->numel}));
    offset += p->numel * p->kv_shards;
  }
}

void GradientSync::sync() {
  at::NoGradGuard no_grad;
  if (packed_.defined()) sync_tensor_axis();
  if (!tied_.empty()) exchange_tied();
}

void GradientSync::sync_tensor_axis() {
  int64_t offset = 0;
  for (Parameter* p : partial_) {
    packed_.narrow(0, offset, p->numel).copy_(p->gradient.view({-1}));
    offset += p->numel;
  }
  // Own slot = own gradient, other slots zero: the sum over the whole tensor group is, slot by slot, the sum over that shard's replicas.
  for (size_t i = 0; i < replicated_kv_.size(); ++i) {
    kv_slots_[i].zero_();
    kv_slots_[i].select(0, mesh_.tensor().rank() / replicated_kv_[i]->kv_replicas).copy_(replicated_kv_[i]->gradient.view({-1}));
  }
  mesh_.tensor().all_reduce(packed_)->wait();
  offset = 0;
  for (Parameter* p : partial_) {
    p->gradient.view({-1}).copy_(packed_.narrow(0, offset, p->numel));
    offset += p->numel;
  }
  for (size_t i = 0; i < replicated_kv_.size(); ++i)
    replicated_kv_[i]->gradient.view({-1}).copy_(kv_slots_[i].select(0, mesh_.tensor().rank() / replicated_kv_[i]->kv_replicas));
}

void GradientSync::exchange_tied() {
  ProcessGroup& pipeline = mesh_.pipeline();
  std::vector<WorkPtr> works;
  int64_t offset = 0;
  int tag = options_.tag;
  for (Parameter* p : tied_) {
    works.push_back(pipeline.send(p->gradient, options_.tied_peer, tag));
    works.push_back(pipeline.recv(received_.narrow(0, offset, p->numel), options_.tied_peer, tag));
    offset += p->numel;
    ++tag;
  }
  for (const WorkPtr& work : works) work->wait();
  offset = 0;
  for (Parameter* p : tied_) {
    p->gradient.view({-1}).add_(received_.narrow(0, offset, p->numel));
    offset += p->numel;
  }
}

}  // namespace plait
