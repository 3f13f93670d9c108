// Exchange: one way to sum a span of numbers over the ranks of a group in fewer bytes than they have. What a rank could not pass on is
// left in its residual, which the caller adds to the next step's numbers (error feedback): over the steps
//   sum of the results + sum over ranks of the last residuals = sum over ranks of the numbers.
// The numbers' own type is fp32 or fp64; sums are made in it. All ranks end with the same bits. An element that is not finite on one rank
// makes the result not finite on all.
// Rank rule: all members build the same exchanges in the same order and call the same methods; advance() may be called at any time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plait/comm/process_group.h"
#include "plait/tensor/wire_codec.h"

namespace plait {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Before start(), on all members once a step or on none: makes ready for the messages of others. A sender over a network waits for the word
  // that its message is expected; early, that word does not stand behind other messages.
  virtual void expect() {}
  // values, residual: [numel], contiguous, the exchange's until finish(): values becomes the sum; residual is overwritten.
  virtual void start(at::Tensor values, at::Tensor residual) = 0;
  // Goes on with what has arrived, without waiting.
  virtual void advance() {}
  // Waits for the first half, where there are two, and starts the second.
  virtual void proceed() {}
  virtual void finish() = 0;
  // Bytes this rank put on the wire in the last exchange; of a collective: what the cheapest algorithm sends.
  virtual int64_t bytes_sent() const = 0;

  // What an exchange remembers from step to step beside the residual; the same on all ranks.
  virtual std::vector<NamedTensor> state() { return {}; }
  // false: the last step is taken back, as if it had not been.
  virtual void settle(bool /*applied*/) {}
};

// Bytes that one of `ranks` ranks sends in a bandwidth-optimal all-reduce of `bytes`.
int64_t all_reduce_bytes(int64_t bytes, int64_t ranks);

// Shards of 256-element blocks, one a rank. Each rank sends every other one that one's shard in the wire type and sums its own in rank order,
// then sends the sum, in the wire type again, to all. The residual holds the first rounding for the shards of others and the second for the
// own one. `tag`, tag + 1: of its point-to-point messages.
std::unique_ptr<Exchange> make_quantized_exchange(ProcessGroup& group, WireType type, int64_t numel, int tag);

// The share `ratio` of the elements with the largest magnitude, at least one, as values and positions by all_gather; exact for them.
std::unique_ptr<Exchange> make_top_k_exchange(ProcessGroup& group, double ratio, int64_t numel);

// bf16 through the group's own all_reduce, which decides in what precision it sums. The caller does not feed its residual back.
std::unique_ptr<Exchange> make_library_exchange(ProcessGroup& group);

struct MatrixSpan {
  std::string name;
  int64_t begin = 0;  // element of the exchange's numbers
  int64_t rows = 0, columns = 0;
};
// True when two factors of that rank are at most half of the matrix.
bool low_rank_pays(int64_t rows, int64_t columns, int64_t rank);

// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv 1905.13727), algorithm 1, one power iteration a step, warm start: for each matrix M
//   P = M Q summed; P orthonormalised; Q = M^T P summed; result P Q^T, the projection of the summed matrix on the span of P.
// The residual is the rank's own: M - P (M^T P)^T. The matrices cover the numbers. Q starts from `seed` and the matrix's name.
std::unique_ptr<Exchange> make_power_sgd_exchange(ProcessGroup& group, std::vector<MatrixSpan> matrices, int64_t rank, uint64_t seed,
                                                  at::TensorOptions options);

}  // namespace plait
