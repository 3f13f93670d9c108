// Words to ids: the "model" of a tokenizer.json. Immutable after construction; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace plait {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

// Spelling of a token in the file -> id.
using Vocabulary = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the ids of one word (UTF-8, not empty).
  virtual void encode_word(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

}  // namespace plait
