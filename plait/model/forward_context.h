// ForwardContext: what every layer of one forward pass shares: the micro-batch, its attention runs, rotary table and dropout keys.
// It must outlive the forward call; backward keeps what it needs itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "plait/config/model_shape.h"
#include "plait/model/rotary.h"
#include "plait/tensor/dropout.h"
#include "plait/tensor/micro_batch.h"

namespace plait {

// `count` neighbouring segments of equal length, attended to in one kernel call.
struct SegmentRun {
  int64_t begin = 0;   // first token
  int64_t count = 0;   // segments
  int64_t length = 0;  // tokens of each
};

struct ForwardContext {
  const MicroBatch& batch;
  std::vector<SegmentRun> runs;
  RotaryTable rotary;                             // defined for rotary models
  std::vector<uint64_t> token_keys, sample_keys;  // [T], [B] dropout keys (tensor/dropout.h); empty when nothing is dropped
  bool training = false;
  at::Tensor result;  // [rows, hidden] where the stage may leave its output; undefined: anywhere
};

// Runs of a micro-batch, in order; empty segments are left out.
std::vector<SegmentRun> segment_runs(const std::vector<int64_t>& segment_offsets);
std::vector<int64_t> pack_runs(const std::vector<SegmentRun>& runs);
std::vector<SegmentRun> unpack_runs(const std::vector<int64_t>& packed);

struct DropoutStream {
  uint64_t seed = 0;
  int64_t step = 0;
  bool active = false;  // training with any dropout
};

ForwardContext make_forward_context(const MicroBatch& batch, const ModelShape& shape, at::ScalarType compute_type, bool training,
                                    const DropoutStream& stream);

}  // namespace plait
