// The normalizer of a tokenizer.json: steps that rewrite the text before it is split into words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/data/unicode.h"

namespace plait {

struct NormalizerStep {
  enum class Kind { kBert, kUnicodeForm, kLowercase };
  Kind kind = Kind::kLowercase;
  UnicodeForm form = UnicodeForm::kNfc;  // kUnicodeForm
  // kBert, applied in this order:
  bool clean_text = false;      // controls dropped, white space becomes a blank
  bool handle_chinese = false;  // blanks around CJK ideographs
  bool strip_accents = false;   // NFD, then Mn dropped
  bool lowercase = false;
};

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool changes_nothing() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;  // text must be UTF-8

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace plait
