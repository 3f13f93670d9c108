// A split pattern of a tokenizer.json, run by PCRE2 with the meaning that Hugging Face's Oniguruma gives it. Constructs
// that the two read differently are refused by name rather than guessed. Immutable after it is built; thread safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace plait {

class SplitPattern {
 public:
  // Throws std::invalid_argument with the reason when the pattern cannot be honoured.
  explicit SplitPattern(const std::string& pattern);

  // Calls visit(begin, end) for each match, left to right, until it returns false. text must be UTF-8.
  // Throws Error(kCheckpoint) when the pattern needs too much work on this text.
  void for_each_match(std::string_view text, const std::function<bool(size_t, size_t)>& visit) const;

  // The pattern as given to PCRE2.
  const std::string& translated() const { return translated_; }

 private:
  struct Code;
  std::string pattern_;
  std::string translated_;
  std::shared_ptr<const Code> code_;
};

}  // namespace plait
