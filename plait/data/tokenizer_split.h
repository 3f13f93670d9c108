// The pre_tokenizer of a tokenizer.json: steps that cut the text into the words that the model sees one by one.
// Each step cuts every piece of the step before it; pieces never join again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plait/data/tokenizer_pattern.h"

namespace plait {

// What becomes of a match, as in Hugging Face (for matches of "-" in "a--b"):
// kRemoved a b | kIsolated a - - b | kMergedWithPrevious a- - b | kMergedWithNext a - -b | kContiguous a -- b
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  enum class Kind { kBert, kDigits, kPattern, kLiteral, kByteLevel };
  Kind kind = Kind::kByteLevel;
  SplitBehavior behavior = SplitBehavior::kIsolated;  // kPattern, kLiteral
  bool invert = false;                                // kPattern, kLiteral: what lies between the matches counts as matched
  std::shared_ptr<const SplitPattern> pattern;        // kPattern
  std::string literal;                                // kLiteral, not empty
  bool individual_digits = false;                     // kDigits: each for itself, else runs
  bool add_prefix_space = false;                      // kByteLevel: a blank before a piece that has none
  bool use_gpt2_pattern = true;                       // kByteLevel
};

class WordSplitter {
 public:
  // Receives a word (never empty); returns false to stop.
  using Sink = std::function<bool(std::string_view)>;

  explicit WordSplitter(std::vector<SplitStep> steps) : steps_(std::move(steps)) {}

  // Words of one piece of text (UTF-8, not empty) in order. Returns false when the sink stopped it.
  bool split(std::string_view text, const Sink& sink) const { return run(0, text, sink); }

 private:
  bool run(size_t step_index, std::string_view text, const Sink& sink) const;

  std::vector<SplitStep> steps_;
};

}  // namespace plait
