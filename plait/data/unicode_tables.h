// Sorted, disjoint ranges of code points. They were made by asking tokenizers 0.23.3 about each code point on its own
// (docs/tokenizers.md says how), because its kinds mix Unicode 9 (BERT) and Unicode 16 (split patterns).
#pragma once

#include <cstdint>
#include <span>

namespace plait {

struct CodePointRange {
  uint32_t first;
  uint32_t last;  // included
};

std::span<const CodePointRange> letter_ranges();
std::span<const CodePointRange> number_ranges();
std::span<const CodePointRange> bert_punctuation_ranges();
std::span<const CodePointRange> bert_control_ranges();
std::span<const CodePointRange> bert_accent_ranges();

}  // namespace plait
