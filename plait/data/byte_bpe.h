// Byte-level BPE: a word is a row of bytes, and the neighbouring pair of lowest merge rank (leftmost among equals) is
// joined until no pair of the merge list is left. Sennrich et al. 2016 over GPT-2's 256 printable stand-ins for bytes.
// Words seen before come from a cache of bounded size, shared by all threads (a few locks keep them apart).
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plait/data/tokenizer_model.h"

namespace plait {

// GPT-2's alphabet: the character that stands for a byte in the file, and back.
std::string byte_level_character(uint8_t byte);
// Bytes of a token's spelling; nothing when a character stands for no byte (an added token).
std::optional<std::string> byte_level_decode(std::string_view spelling);

struct ByteBpeOptions {
  std::vector<std::pair<std::string, std::string>> merges;  // lowest rank first; of equal pairs the last counts
  std::optional<std::string> unk_token;                     // for bytes that the vocabulary lacks; without it they vanish
  bool fuse_unk = false;                                    // neighbouring unknown bytes become one unknown token
  bool ignore_merges = false;                               // a word that is a token is that token, whatever the merges say
};

class ByteBpe final : public WordModel {
 public:
  // Throws std::invalid_argument when a merge or unk_token names a token that is not in the vocabulary.
  ByteBpe(const Vocabulary& vocabulary, const ByteBpeOptions& options);

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const { return static_cast<size_t>((pair ^ pair >> 29) * 0x9E3779B97F4A7C15ull >> 8); }
  };
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
  };
  struct Candidate;
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> words;
  };

  const Merge* find_merge(int32_t left, int32_t right) const;
  std::vector<Symbol> symbols_of(std::string_view word) const;
  void merge_word(std::string_view word, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_;  // -1: not in the vocabulary
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
  Vocabulary whole_words_;  // filled when ignore_merges
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false;
  mutable std::array<Shard, 16> cache_;
};

}  // namespace plait
