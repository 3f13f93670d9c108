// Self-attention of the query heads that share one key/value head, over one segment: scores, softmax and the five products of forward and
// backward on AVX-512, in fp32 whatever the type in memory (flash attention, Dao et al., arXiv 2205.14135: the scores of a few queries at a
// time, probabilities computed anew in the backward). A causal segment computes only the keys that are seen. Rotary embedding is applied as
// rows are read and undone as gradients are written, so no rotated copy exists. The same bits whatever the number of threads.
// Thread rule: calls share nothing but what the caller shares.
#pragma once

#include <cstdint>

#include "plait/tensor/exp_kernels.h"

namespace plait::detail {

// Letters: S tokens of the segment, D head size, r query heads of the group. Pointers: first token; strides: elements from token to token.
template <class T>
struct AttentionHeads {
  int64_t length = 0, head_size = 0, num_queries = 1;  // S, D, r
  float scale = 1.0f;
  bool causal = true;
  const T *q = nullptr, *k = nullptr, *v = nullptr;  // query head j at q + j * D
  int64_t stride = 0;                                // of q, k and v
  T* out = nullptr;                                  // head j at out + j * D; backward reads it
  int64_t out_stride = 0;
  float* log_sum = nullptr;                        // [r, S] log of the sum of exponentials; head j at log_sum + j * S
  const float *cosine = nullptr, *sine = nullptr;  // [S, D/2], or null: no rotary embedding
};

template <class T>
struct AttentionGradients {
  const T* d_out = nullptr;  // as out
  int64_t d_out_stride = 0;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr;  // as q, k, v; overwritten
  int64_t stride = 0;
};

// Whether this processor runs them.
bool attention_kernels_available();
// Floats of scratch memory, 64-byte aligned, that a call needs.
int64_t attention_forward_scratch(int64_t length, int64_t head_size);
int64_t attention_backward_scratch(int64_t length, int64_t head_size);

// T: float, BFloat16Bits or Float16Bits.
template <class T>
void attention_forward(const AttentionHeads<T>& heads, float* scratch);
template <class T>
void attention_backward(const AttentionHeads<T>& heads, const AttentionGradients<T>& gradients, float* scratch);

}  // namespace plait::detail
