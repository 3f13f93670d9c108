// The words of every enum setting. The first spelling of a value is the one printed; the others are read too.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plait/base/error.h"
#include "plait/config/config.h"

namespace plait {

template <class E>
using EnumWords = std::vector<std::pair<const char*, E>>;

inline EnumWords<Task> enum_words(Task) {
  return {{"text-classification", Task::kTextClassification}, {"text-generation", Task::kTextGeneration}};
}
inline EnumWords<DType> enum_words(DType) {
  return {{"float32", DType::kFloat32}, {"bfloat16", DType::kBFloat16}, {"float16", DType::kFloat16}, {"float64", DType::kFloat64},
          {"fp32", DType::kFloat32},    {"bf16", DType::kBFloat16},     {"fp16", DType::kFloat16},    {"fp64", DType::kFloat64}};
}
inline EnumWords<ScheduleKind> enum_words(ScheduleKind) {
  return {
      {"gpipe", ScheduleKind::kGPipe},        {"1f1b", ScheduleKind::k1F1B},          {"interleaved_1f1b", ScheduleKind::kInterleaved1F1B},
      {"zb_h1", ScheduleKind::kZeroBubbleH1}, {"zb_h2", ScheduleKind::kZeroBubbleH2}, {"zb_v", ScheduleKind::kZeroBubbleV},
      {"auto", ScheduleKind::kAuto},          {"custom", ScheduleKind::kCustom},      {"interleaved", ScheduleKind::kInterleaved1F1B}};
}
inline EnumWords<CommStyle> enum_words(CommStyle) {
  return {{"auto", CommStyle::kAuto}, {"p2p", CommStyle::kP2P}, {"collective", CommStyle::kCollective}};
}
inline EnumWords<GradientCompression> enum_words(GradientCompression) {
  using G = GradientCompression;
  return {{"none", G::kNone},         {"bf16", G::kBFloat16}, {"fp16", G::kFloat16}, {"fp8", G::kFloat8},
          {"powersgd", G::kPowerSGD}, {"topk", G::kTopK},     {"nccl", G::kNccl},    {"bfloat16", G::kBFloat16},
          {"float16", G::kFloat16},   {"float8", G::kFloat8}, {"false", G::kNone}};
}
inline EnumWords<BorderCompression> enum_words(BorderCompression) {
  using B = BorderCompression;
  return {{"none", B::kNone},         {"bf16", B::kBFloat16},   {"fp16", B::kFloat16}, {"fp8", B::kFloat8},
          {"bfloat16", B::kBFloat16}, {"float16", B::kFloat16}, {"float8", B::kFloat8}};
}
inline EnumWords<Affinity> enum_words(Affinity) { return {{"auto", Affinity::kAuto}, {"none", Affinity::kNone}}; }
inline EnumWords<OptimizerKind> enum_words(OptimizerKind) {
  return {{"AdamW", OptimizerKind::kAdamW}, {"Adam", OptimizerKind::kAdam}, {"SGD", OptimizerKind::kSGD},
          {"adamw", OptimizerKind::kAdamW}, {"adam", OptimizerKind::kAdam}, {"sgd", OptimizerKind::kSGD}};
}
inline EnumWords<LrSchedulerKind> enum_words(LrSchedulerKind) {
  return {{"linear", LrSchedulerKind::kLinear},
          {"cosine", LrSchedulerKind::kCosine},
          {"constant", LrSchedulerKind::kConstant},
          {"step", LrSchedulerKind::kStep},
          {"multi_step", LrSchedulerKind::kMultiStep},
          {"exponential", LrSchedulerKind::kExponential},
          {"polynomial", LrSchedulerKind::kPolynomial},
          {"ramp", LrSchedulerKind::kRamp},
          {"inverse_sqrt", LrSchedulerKind::kInverseSqrt},
          {"constant_with_warmup", LrSchedulerKind::kConstant},
          {"noam", LrSchedulerKind::kInverseSqrt}};
}
inline EnumWords<WarmupKind> enum_words(WarmupKind) {
  return {{"linear", WarmupKind::kLinear}, {"constant", WarmupKind::kConstant}, {"exponential", WarmupKind::kExponential}};
}
inline EnumWords<SaveStrategy> enum_words(SaveStrategy) {
  return {{"no", SaveStrategy::kNo},    {"epoch", SaveStrategy::kEpoch},    {"steps", SaveStrategy::kSteps},
          {"false", SaveStrategy::kNo}, {"by_epoch", SaveStrategy::kEpoch}, {"by_step", SaveStrategy::kSteps}};
}
inline EnumWords<BlockMode> enum_words(BlockMode) { return {{"stream", BlockMode::kStream}, {"document", BlockMode::kDocument}}; }
inline EnumWords<Metric> enum_words(Metric) {
  return {{"accuracy", Metric::kAccuracy},
          {"f1", Metric::kF1},
          {"loss", Metric::kLoss},
          {"perplexity", Metric::kPerplexity},
          {"ppl", Metric::kPerplexity}};
}
inline EnumWords<EvalStrategy> enum_words(EvalStrategy) {
  return {{"no", EvalStrategy::kNo},    {"epoch", EvalStrategy::kEpoch},    {"steps", EvalStrategy::kSteps},
          {"false", EvalStrategy::kNo}, {"by_epoch", EvalStrategy::kEpoch}, {"by_step", EvalStrategy::kSteps}};
}

// "1f1b" of ScheduleKind::k1F1B.
template <class E>
std::string enum_word(E value) {
  for (const auto& [word, known] : enum_words(E{}))
    if (known == value) return word;
  PLAIT_CHECK(false, "enum value ", static_cast<int>(value), " without a word");
}

template <class E>
std::optional<E> parse_enum_word(const std::string& text) {
  for (const auto& [word, value] : enum_words(E{}))
    if (text == word) return value;
  return std::nullopt;
}

// The printed spellings, each value once.
template <class E>
std::vector<std::string> enum_choices() {
  std::vector<std::string> out;
  for (const auto& [word, value] : enum_words(E{}))
    if (enum_word(value) == word) out.push_back(word);
  return out;
}

}  // namespace plait
