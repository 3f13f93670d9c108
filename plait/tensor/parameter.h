// Parameter: the one record of a logical weight on this rank, and ParameterStore, which owns their memory.
// The model declares every parameter once; the store then lays them out in flat buffers (weights, fp32 masters, gradients),
// so buckets, clipping and the optimizer work on long contiguous spans. Nobody else parses names.
// Rank rule: every rank declares the same logical parameters in the same order for a given stage; no communication here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace plait {

// Rows [local_begin, +size) of the local storage are rows [global_begin, +size) of the logical tensor along the shard axis.
struct ShardPiece {
  int64_t local_begin = 0;
  int64_t global_begin = 0;
  int64_t size = 0;
};

enum class InitKind { kNormal, kZeros, kOnes };

struct Parameter {
  std::string name;                   // Hugging Face's, global
  std::vector<int64_t> global_shape;  // as Hugging Face stores it
  bool transposed = false;            // the local tensor is stored transposed to the file's (GPT-2's Conv1D)
  int64_t shard_axis = -1;            // of the LOCAL (stored) layout; -1: replicated over the tensor axis
  std::vector<ShardPiece> pieces;     // empty when replicated
  std::vector<int64_t> local_shape;   // stored layout
  std::vector<int64_t> owner_stages;  // virtual stages; tied ones have two
  bool decay = true;                  // weight decay applies (false: biases and norms)
  bool counts_in_norm = true;         // this rank's copy is the one that enters the global norm
  bool owner = true;                  // this rank writes it on export (one rank along tp and pp for each piece)
  bool partial_over_tp = false;       // replicated, but each tensor rank has only a part of the gradient (sequence parallel)
  int64_t kv_replicas = 1;            // > 1: the same shard lies on this many neighbouring tensor ranks (few KV heads)
  int64_t kv_shards = 1;              // distinct shards over the tensor axis when kv_replicas > 1
  bool follows_previous = false;      // lies right behind the parameter declared before it, so that both form one fused matrix
  bool tied_across_stages = false;    // another pipeline rank holds a copy: gradients are exchanged
  InitKind init = InitKind::kNormal;
  double init_std = 0.02;

  // Set by ParameterStore::allocate(); the gradient is undefined in a store without gradients.
  int64_t offset = 0;  // elements into the flat buffers
  int64_t numel = 0;
  at::Tensor weight;    // compute type, view of the flat weights
  at::Tensor master;    // fp32 (fp64 when computing in fp64); same memory as weight when the types are equal
  at::Tensor gradient;  // master type, view of the flat gradients

  // Uses in graphs whose backward is still to come. A layer calls add_use() in forward and use_done() after it added its share to
  // `gradient`; when the count falls to 0 the store's listener hears of it (data-parallel overlap).
  int64_t pending_uses = 0;
  std::function<void(Parameter&)>* listener = nullptr;
  void add_use() { ++pending_uses; }
  void use_done() {
    if (--pending_uses == 0 && listener && *listener) (*listener)(*this);
  }
};

class ParameterStore {
 public:
  // Declares one parameter; the reference stays valid. Order of declaration = order in memory.
  Parameter& declare(Parameter parameter);

  // Allocates the flat buffers (zeroed) on `device` and sets the views. compute_type: kFloat, kBFloat16, kHalf, kDouble.
  // with_gradients false (a model that is only evaluated): flat_gradients() and the views of it stay undefined. make_gradients: makes the
  // gradients' zeros, for example where others read them; empty: on `device` like the rest.
  using MakeZeros = std::function<at::Tensor(int64_t elements, at::ScalarType type)>;
  void allocate(at::ScalarType compute_type, at::Device device, bool with_gradients = true, const MakeZeros& make_gradients = {});

  // Seeded values that are a function of (seed, name, global index) only. all_random: norms get 1 + noise and biases noise, so
  // that tests can see every missing sync.
  // only: names to fill; empty = all.
  void initialize(uint64_t seed, bool all_random = false, const std::vector<std::string>& only = {});

  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  at::Tensor flat_weights() const { return weights_; }
  at::Tensor flat_masters() const { return masters_; }
  at::Tensor flat_gradients() const { return gradients_; }
  bool low_precision() const { return !weights_.is_same(masters_); }
  void zero_gradients();
  // weights = round(masters), after an update or a load into masters. No-op when they share memory.
  void refresh_weights();
  // Called with a parameter when all its pending uses are done. Empty function: off.
  void set_listener(std::function<void(Parameter&)> listener) { listener_ = std::move(listener); }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  at::Tensor weights_, masters_, gradients_;
  std::function<void(Parameter&)> listener_;
};

// Calls f(local_row_index, global_flat_begin, local_flat_begin, length) for each contiguous run shared by the local storage and the
// logical tensor in STORED layout (transposed tensors: logical layout = transpose of the file's). The unit of load, export and init.
void for_each_run(const Parameter& parameter, const std::function<void(int64_t global_begin, int64_t local_begin, int64_t length)>& f);

// Shape of the logical tensor in stored layout.
std::vector<int64_t> stored_global_shape(const Parameter& parameter);

}  // namespace plait
