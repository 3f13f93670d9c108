// Self-attention over tokens [T, ...] without padding: rows attend inside their segment only (MicroBatch::segment_offsets).
// Heads are split over the tensor axis by the caller; nothing here communicates.
// Letters: T tokens, n local query heads, g local key/value heads, D head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "plait/model/forward_context.h"

namespace plait {

struct AttentionOptions {
  int64_t num_heads = 0;     // n
  int64_t num_kv_heads = 0;  // g, divides n
  int64_t head_size = 0;     // D
  int64_t first_head = 0;    // global index of the first local head, for dropout keys
  int64_t layer = 0;
  double scale = 1.0;
  bool causal = true;
  int64_t window = 0;  // a query sees this many tokens back, itself included; 0 = all
  bool rotary = false;
  double dropout = 0.0;
};

// qkv [T, (n + 2g) D]: q heads, then k heads, then v heads -> [T, n D]. Rotates q and k, softmax in fp32 (fp64).
// Without dropout a fused kernel runs (flash attention, Dao et al., arXiv 2205.14135): plait's own where it can, else LibTorch's; with
// dropout the explicit form.
at::Tensor attention(const at::Tensor& qkv, const AttentionOptions& options, const ForwardContext& context);

}  // namespace plait
