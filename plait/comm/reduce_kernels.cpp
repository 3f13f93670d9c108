#include "plait/comm/reduce_kernels.h"

#include <algorithm>
#include <cstring>

namespace plait::detail {
namespace {

constexpr int64_t kReduceBlock = 512;  // a fixed inner trip count lets the compiler vectorise at -O2

template <class Accumulator, class Element>
void fold_block(Reduction reduction, Accumulator* sum, const Element* x) {
  switch (reduction) {
    case Reduction::kSum:
      for (int64_t i = 0; i < kReduceBlock; ++i) sum[i] = static_cast<Accumulator>(sum[i] + static_cast<Accumulator>(x[i]));
      break;
    // `other OR is NaN` keeps a NaN of any rank: an overflow check by max must never lose one.
    case Reduction::kMax:
      for (int64_t i = 0; i < kReduceBlock; ++i) {
        Accumulator v = static_cast<Accumulator>(x[i]);
        sum[i] = (v > sum[i] || v != v) ? v : sum[i];
      }
      break;
    case Reduction::kMin:
      for (int64_t i = 0; i < kReduceBlock; ++i) {
        Accumulator v = static_cast<Accumulator>(x[i]);
        sum[i] = (v < sum[i] || v != v) ? v : sum[i];
      }
      break;
  }
}

template <class Element, class Accumulator>
void reduce_typed(Reduction reduction, const std::vector<const void*>& inputs, const std::vector<void*>& outputs, int64_t n) {
  alignas(64) Accumulator sum[kReduceBlock];
  alignas(64) Element tail[kReduceBlock];
  for (int64_t begin = 0; begin < n; begin += kReduceBlock) {
    int64_t count = std::min(kReduceBlock, n - begin);
    for (size_t r = 0; r < inputs.size(); ++r) {
      const Element* x = static_cast<const Element*>(inputs[r]) + begin;
      if (count < kReduceBlock) {  // the last block: pad with zeros that nobody reads
        std::memset(static_cast<void*>(tail), 0, sizeof tail);
        std::memcpy(static_cast<void*>(tail), x, static_cast<size_t>(count) * sizeof(Element));
        x = tail;
      }
      if (r == 0) {
        for (int64_t i = 0; i < kReduceBlock; ++i) sum[i] = static_cast<Accumulator>(x[i]);
      } else {
        fold_block(reduction, sum, x);
      }
    }
    for (int64_t i = 0; i < kReduceBlock; ++i) tail[i] = static_cast<Element>(sum[i]);
    for (void* output : outputs)
      std::memcpy(static_cast<void*>(static_cast<Element*>(output) + begin), tail, static_cast<size_t>(count) * sizeof(Element));
  }
}

}  // namespace

bool reduce_slices(at::ScalarType type, Reduction reduction, const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                   int64_t n) {
  switch (type) {
    case at::kDouble: reduce_typed<double, double>(reduction, inputs, outputs, n); return true;
    case at::kFloat: reduce_typed<float, float>(reduction, inputs, outputs, n); return true;
    case at::kBFloat16: reduce_typed<c10::BFloat16, float>(reduction, inputs, outputs, n); return true;
    case at::kHalf: reduce_typed<c10::Half, float>(reduction, inputs, outputs, n); return true;
    case at::kLong: reduce_typed<int64_t, int64_t>(reduction, inputs, outputs, n); return true;
    case at::kInt: reduce_typed<int32_t, int32_t>(reduction, inputs, outputs, n); return true;
    case at::kByte: reduce_typed<uint8_t, uint8_t>(reduction, inputs, outputs, n); return true;
    case at::kChar: reduce_typed<int8_t, int8_t>(reduction, inputs, outputs, n); return true;
    case at::kBool: reduce_typed<bool, uint8_t>(reduction, inputs, outputs, n); return true;
    default: return false;
  }
}

}  // namespace plait::detail
