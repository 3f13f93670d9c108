#include "plait/comm/reduce_kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "plait/tensor/vectorize.h"

namespace plait::detail {
namespace {

constexpr int64_t kReduceBlock = 512;  // sums of a block stay in the first-level cache, and its loops have a fixed length

template <class Accumulator, class Element>
PLAIT_KERNEL Accumulator fold(Reduction reduction, Accumulator a, Element x) {
  const Accumulator v = static_cast<Accumulator>(x);
  // `v is NaN` keeps a NaN of any rank: an overflow check by max must never lose one.
  if (reduction == Reduction::kMax) return (v > a || v != v) ? v : a;
  if (reduction == Reduction::kMin) return (v < a || v != v) ? v : a;
  return static_cast<Accumulator>(a + v);
}

template <Reduction kReduction, class Accumulator, class Element>
PLAIT_KERNEL void fold_block(Accumulator* sum, const Element* x) {
  for (int64_t i = 0; i < kReduceBlock; ++i) sum[i] = fold(kReduction, sum[i], x[i]);
}

template <Reduction kReduction, class Accumulator, class Element>
PLAIT_KERNEL void begin_block(Accumulator* sum, const Element* x, const Element* y) {
  for (int64_t i = 0; i < kReduceBlock; ++i) sum[i] = fold(kReduction, static_cast<Accumulator>(x[i]), y[i]);
}

template <Reduction kReduction, class Element, class Accumulator>
PLAIT_KERNEL void reduce_all(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, int64_t n) {
  alignas(64) Accumulator sum[kReduceBlock];
  alignas(64) Element rounded[kReduceBlock];
  alignas(64) Element padded[2][kReduceBlock];
  const size_t num_inputs = inputs.size();
  for (int64_t begin = 0; begin < n; begin += kReduceBlock) {
    const int64_t count = std::min(kReduceBlock, n - begin);
    const auto bytes = static_cast<size_t>(count) * sizeof(Element);
    auto block = [&](size_t r) PLAIT_KERNEL_LAMBDA {
      const Element* x = static_cast<const Element*>(inputs[r]) + begin;
      if (count == kReduceBlock) return x;
      Element* whole = padded[r == 1];  // the last block, filled up with zeros that nobody reads
      std::memset(static_cast<void*>(whole), 0, sizeof padded[0]);
      std::memcpy(static_cast<void*>(whole), x, bytes);
      return static_cast<const Element*>(whole);
    };
    const Element* first = block(0);
    if (num_inputs > 1) begin_block<kReduction>(sum, first, block(1));
    else
      for (int64_t i = 0; i < kReduceBlock; ++i) sum[i] = static_cast<Accumulator>(first[i]);
    for (size_t r = 2; r < num_inputs; ++r) fold_block<kReduction>(sum, block(r));
    const void* from = sum;
    if constexpr (!std::is_same_v<Element, Accumulator>) {
      for (int64_t i = 0; i < kReduceBlock; ++i) rounded[i] = static_cast<Element>(sum[i]);
      from = rounded;
    }
    for (void* output : outputs) std::memcpy(static_cast<void*>(static_cast<Element*>(output) + begin), from, bytes);
  }
}

template <class Element, class Accumulator>
bool reduce_typed(Reduction reduction, const std::vector<const void*>& inputs, const std::vector<void*>& outputs, int64_t n) {
  switch (reduction) {
    case Reduction::kSum:
      run_vectorized([&]() PLAIT_KERNEL_LAMBDA { reduce_all<Reduction::kSum, Element, Accumulator>(inputs, outputs, n); });
      break;
    case Reduction::kMax:
      run_vectorized([&]() PLAIT_KERNEL_LAMBDA { reduce_all<Reduction::kMax, Element, Accumulator>(inputs, outputs, n); });
      break;
    case Reduction::kMin:
      run_vectorized([&]() PLAIT_KERNEL_LAMBDA { reduce_all<Reduction::kMin, Element, Accumulator>(inputs, outputs, n); });
      break;
  }
  return true;
}

}  // namespace

bool reduce_slices(at::ScalarType type, Reduction reduction, const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                   int64_t n) {
  switch (type) {
    case at::kDouble: return reduce_typed<double, double>(reduction, inputs, outputs, n);
    case at::kFloat: return reduce_typed<float, float>(reduction, inputs, outputs, n);
    case at::kBFloat16: return reduce_typed<c10::BFloat16, float>(reduction, inputs, outputs, n);
    case at::kHalf: return reduce_typed<c10::Half, float>(reduction, inputs, outputs, n);
    case at::kLong: return reduce_typed<int64_t, int64_t>(reduction, inputs, outputs, n);
    case at::kInt: return reduce_typed<int32_t, int32_t>(reduction, inputs, outputs, n);
    case at::kByte: return reduce_typed<uint8_t, uint8_t>(reduction, inputs, outputs, n);
    case at::kChar: return reduce_typed<int8_t, int8_t>(reduction, inputs, outputs, n);
    case at::kBool: return reduce_typed<bool, uint8_t>(reduction, inputs, outputs, n);
    default: return false;
  }
}

}  // namespace plait::detail
