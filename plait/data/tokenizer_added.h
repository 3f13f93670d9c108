// Added tokens ("[MASK]", "<|im_end|>"): found literally in the text before anything else happens to it, leftmost first,
// the longest of those that begin there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // not where a letter, digit or mark touches it
  bool lstrip = false;       // takes the white space at its left with it
  bool rstrip = false;
  bool normalized = false;  // content and text are compared after the normalizer
  bool special = false;     // skipped by decode(skip_special_tokens)
};

class AddedTokenMatcher {
 public:
  struct Span {
    size_t begin;
    size_t end;
    int32_t id;  // -1: text between tokens
  };

  AddedTokenMatcher() = default;
  // `spelling` is what is looked for (content after the normalizer for normalized tokens), never empty. Of two equal
  // spellings the first counts.
  explicit AddedTokenMatcher(const std::vector<std::pair<std::string, AddedToken>>& spelling_and_token);

  bool empty() const { return tokens_.empty(); }
  std::vector<Span> split(std::string_view text) const;  // spans in order; together they are the text

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;
    int32_t token = -1;  // index into tokens_ of the spelling that ends here
  };
  bool longest_at(std::string_view text, size_t begin, size_t& end, int32_t& token) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<bool> starts_ = std::vector<bool>(256, false);
};

}  // namespace plait
