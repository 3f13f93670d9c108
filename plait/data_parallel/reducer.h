// GradientReducer: sums gradients over the data axis in flat buckets: contiguous ranges of the store's flat gradient buffer, cut at
// parameter borders, reduced in place in the gradients' own type (fp32 or fp64). With overlap a bucket is sent during the last backward,
// as soon as all its parameters are done AND every bucket behind it in memory was sent: the order is always last bucket to first, so
// neither timing nor overlap changes a bit of the result. A group of size 1 sends nothing. With a compression, buckets of at least its
// threshold go through a CompressedBucket instead, begun at the same place; all ranks end with the same bits then too.
// Thread rule: the backward and all calls here happen on the rank's own thread. Rank rule: all members of the data group build it from
// the same parameters and call the same methods in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "plait/comm/process_group.h"
#include "plait/data_parallel/compressed_bucket.h"
#include "plait/tensor/parameter.h"

namespace plait {

struct ReducerOptions {
  int64_t bucket_size_bytes = 25 << 20;  // a bucket holds at least one parameter, else whole parameters up to this size
  bool overlap = true;                   // false: everything is sent in finish()
  CompressionOptions compression = {};
};

// What the reductions of one step cost on this rank.
struct ReductionCounts {
  double bytes_sent = 0;                           // on the wire; of a library's collective: what the cheapest algorithm sends
  double bytes_saved = 0;                          // against the same buckets uncompressed
  double residual_squares = 0, value_squares = 0;  // squared l2 norms over the compressed buckets: not passed on; to be passed on
};

class GradientReducer {
 public:
  // Takes the store's listener. `store` must be allocated and outlive the reducer. No communication.
  // Throws Error(kUsage): bucket_size_bytes below 1.
  GradientReducer(ParameterStore& store, ProcessGroup& data, ReducerOptions options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Arms the reducer: from now on parameters whose uses are all done are final. Call once a step, before the backward of the last
  // micro-batch; with several model chunks on this rank, before the first chunk's last backward (after the last forward is always right).
  // Earlier backwards only accumulate: nothing is sent.
  void begin_last_backward();

  // Sends what was not sent (parameters without any use included) and waits: the gradients are the sums over the data axis.
  // Once a step, armed or not.
  void finish();

  // The factor on this rank's gradients from now on (the loss scale): residuals are kept without it. To be called between steps.
  void set_gradient_scale(double scale) { gradient_scale_ = scale; }
  // After finish(), when it is known: false = the step is skipped and its gradients are forgotten, so the error feedback is as before it.
  // Without a call the step counts as applied.
  void settle(bool applied);
  bool compresses() const { return num_compressed_ > 0; }
  const ReductionCounts& counts() const { return counts_; }  // of the last finish()
  // The error feedback, a part of the training state: "NAME.residual" [local shape of parameter NAME], master type, this data rank's own (what
  // counts is the sum over the data ranks, so a run with other data ranks may share it out anew), and with powersgd
  // "NAME.power_sgd_start" [columns, rank], the same on all data ranks. Views: copying into them between two steps loads them.
  std::vector<NamedTensor> compression_state();

  struct Bucket {
    int64_t begin = 0, size = 0;  // elements of the flat buffer
    int64_t num_parameters = 0;
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }  // in memory order
  bool is_compressed(size_t bucket) const { return compressed_[bucket] != nullptr; }
  // Buckets sent in this step before finish(): what overlap gained.
  int64_t num_sent_early() const { return num_sent_early_; }

 private:
  void make_buckets();
  void make_compressed();
  void parameter_done(const Parameter& parameter);
  void send_ready();
  void send(size_t bucket);

  ParameterStore& store_;
  ProcessGroup& data_;
  ReducerOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<int64_t> waiting_;                               // [bucket] parameters not done yet
  std::vector<std::unique_ptr<CompressedBucket>> compressed_;  // [bucket]; null: all_reduce in place
  int64_t num_compressed_ = 0;
  double gradient_scale_ = 1;
  ReductionCounts counts_;
  struct Place {
    size_t bucket = 0;
    bool done = false;
  };
  std::unordered_map<const Parameter*, Place> places_;
  std::vector<WorkPtr> works_;
  size_t unsent_ = 0;  // buckets [0, unsent_) are not sent yet
  int64_t num_sent_early_ = 0;
  bool armed_ = false;
};

}  // namespace plait
