#include "plait/data/wordpiece.h"

#include <algorithm>
#include <stdexcept>

#include "plait/base/text.h"
#include "plait/data/unicode.h"

namespace plait {

WordPiece::WordPiece(const Vocabulary& vocabulary, const WordPieceOptions& options) : max_characters_(options.max_characters) {
  auto unk = vocabulary.find(options.unk_token);
  if (unk == vocabulary.end()) throw std::invalid_argument(cat("unk_token \"", options.unk_token, "\" is not in the vocabulary"));
  unk_id_ = unk->second;
  for (const auto& [token, id] : vocabulary) {
    first_.emplace(token, id);
    longest_first_bytes_ = std::max(longest_first_bytes_, token.size());
    if (token.size() > options.continuing_prefix.size() && token.starts_with(options.continuing_prefix)) {
      rest_.emplace(token.substr(options.continuing_prefix.size()), id);
      longest_rest_bytes_ = std::max(longest_rest_bytes_, token.size() - options.continuing_prefix.size());
    }
  }
}

void WordPiece::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (count_code_points(word) > max_characters_) {
    ids.push_back(unk_id_);
    return;
  }
  const size_t ids_before = ids.size();
  for (size_t begin = 0; begin < word.size();) {
    const Vocabulary& pieces = begin == 0 ? first_ : rest_;
    size_t size = std::min(word.size() - begin, begin == 0 ? longest_first_bytes_ : longest_rest_bytes_);
    auto piece = pieces.end();
    for (; size > 0; --size) {
      const bool cuts_a_character = begin + size < word.size() && (static_cast<uint8_t>(word[begin + size]) & 0xC0) == 0x80;
      if (cuts_a_character) continue;
      piece = pieces.find(word.substr(begin, size));
      if (piece != pieces.end()) break;
    }
    if (size == 0) {
      ids.resize(ids_before);
      ids.push_back(unk_id_);
      return;
    }
    ids.push_back(piece->second);
    begin += size;
  }
}

}  // namespace plait
