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
  [[maybe_unused]] alignas(64) Element rounded[kReduceBlock];
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

// Vectors at any address.
template <class Vector>
PLAIT_KERNEL void load(Vector& vector, const void* inputs, int64_t element, size_t element_size) {
  __builtin_memcpy(&vector, static_cast<const char*>(inputs) + static_cast<size_t>(element) * element_size, sizeof vector);
}
template <class Vector>
PLAIT_KERNEL void store(void* output, int64_t element, size_t element_size, const Vector& vector) {
  __builtin_memcpy(static_cast<char*>(output) + static_cast<size_t>(element) * element_size, &vector, sizeof vector);
}

// Sums of types that accumulate in themselves stay in registers on their way from the inputs to the outputs.
template <class Element>
PLAIT_KERNEL void sum_in_registers(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, int64_t n) {
  typedef Element Lanes __attribute__((vector_size(64)));
  constexpr int kWide = 4;
  constexpr int64_t kLanes = 64 / sizeof(Element), kStep = kWide * kLanes;
  const size_t num_inputs = inputs.size();
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    Lanes sum[kWide];
    for (int k = 0; k < kWide; ++k) load(sum[k], inputs[0], i + k * kLanes, sizeof(Element));
    for (size_t r = 1; r < num_inputs; ++r) {
      for (int k = 0; k < kWide; ++k) {
        Lanes v;
        load(v, inputs[r], i + k * kLanes, sizeof(Element));
        sum[k] += v;
      }
    }
    for (void* output : outputs)
      for (int k = 0; k < kWide; ++k) store(output, i + k * kLanes, sizeof(Element), sum[k]);
  }
  for (; i < n; ++i) {
    Element sum = static_cast<const Element*>(inputs[0])[i];
    for (size_t r = 1; r < num_inputs; ++r) sum = fold(Reduction::kSum, sum, static_cast<const Element*>(inputs[r])[i]);
    for (void* output : outputs) static_cast<Element*>(output)[i] = sum;
  }
}

template <Reduction kReduction, class Element, class Accumulator>
void reduce_kind(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, int64_t n) {
  run_vectorized([&]() PLAIT_KERNEL_LAMBDA {
    if constexpr (kReduction == Reduction::kSum && std::is_same_v<Element, Accumulator>) sum_in_registers<Element>(inputs, outputs, n);
    else reduce_all<kReduction, Element, Accumulator>(inputs, outputs, n);
  });
}

template <class Element, class Accumulator>
bool reduce_typed(Reduction reduction, const std::vector<const void*>& inputs, const std::vector<void*>& outputs, int64_t n) {
  switch (reduction) {
    case Reduction::kSum: reduce_kind<Reduction::kSum, Element, Accumulator>(inputs, outputs, n); break;
    case Reduction::kMax: reduce_kind<Reduction::kMax, Element, Accumulator>(inputs, outputs, n); break;
    case Reduction::kMin: reduce_kind<Reduction::kMin, Element, Accumulator>(inputs, outputs, n); break;
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
    case at::kShort: return reduce_typed<int16_t, int16_t>(reduction, inputs, outputs, n);
    case at::kByte: return reduce_typed<uint8_t, uint8_t>(reduction, inputs, outputs, n);
    case at::kChar: return reduce_typed<int8_t, int8_t>(reduction, inputs, outputs, n);
    case at::kBool: return reduce_typed<bool, uint8_t>(reduction, inputs, outputs, n);
    default: return false;
  }
}

bool can_reduce(at::ScalarType type) { return reduce_slices(type, Reduction::kSum, {}, {}, 0); }

}  // namespace plait::detail
