// WordPiece: a word becomes the longest piece of the vocabulary that begins it, then the longest that goes on ("##ing"),
// and so forth; a word that cannot be covered, or is too long, becomes one unknown token.
// Schuster and Nakajima, "Japanese and Korean voice search", 2012; as in BERT.
#pragma once

#include <string>

#include "plait/data/tokenizer_model.h"

namespace plait {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_prefix = "##";
  int64_t max_characters = 100;  // code points of a word
};

class WordPiece final : public WordModel {
 public:
  // Throws std::invalid_argument when unk_token is not in the vocabulary.
  WordPiece(const Vocabulary& vocabulary, const WordPieceOptions& options);

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  Vocabulary first_;  // pieces that may begin a word
  Vocabulary rest_;   // pieces that go on, without their prefix
  size_t longest_first_bytes_ = 0;
  size_t longest_rest_bytes_ = 0;
  int32_t unk_id_ = 0;
  int64_t max_characters_ = 0;
};

}  // namespace plait
