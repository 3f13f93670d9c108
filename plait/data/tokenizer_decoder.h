// The decoder of a tokenizer.json: spellings of tokens back to text.
#pragma once

#include <string>
#include <vector>

namespace plait {

struct TokenDecoder {
  enum class Kind { kNone, kWordPiece, kByteLevel };
  Kind kind = Kind::kNone;    // kNone: the spellings with blanks between them
  std::string prefix = "##";  // kWordPiece: marks a piece that goes on; others get a blank before them
  bool cleanup = true;        // kWordPiece: no blank before .,?! and contractions

  std::string decode(const std::vector<std::string>& tokens) const;
};

}  // namespace plait
