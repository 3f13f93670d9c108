// A tokenizer.json taken apart into the components of plait/data, all of it checked. Internal to plait/data.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plait/data/tokenizer_added.h"
#include "plait/data/tokenizer_decoder.h"
#include "plait/data/tokenizer_model.h"
#include "plait/data/tokenizer_normalizer.h"
#include "plait/data/tokenizer_split.h"

namespace plait::detail {

// One place of the form for pairs: a special token, or where a text stands.
struct PairPiece {
  enum class Kind { kToken, kFirst, kSecond };
  Kind kind = Kind::kToken;
  int32_t id = 0;  // kToken
  int32_t token_type = 0;
};

struct TokenizerParts {
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> splits;
  std::vector<AddedToken> added_tokens;  // special ones first, else in the file's order; ids as the file says, checked
  Vocabulary vocabulary;                 // of the model, without the added tokens
  std::unique_ptr<WordModel> model;
  std::vector<int32_t> prefix;  // special tokens before and behind every text
  std::vector<int32_t> suffix;
  std::vector<PairPiece> pair;  // first text before second, each once; empty = no form for pairs:
  std::string no_pair_reason = "it has no post_processor that joins two texts";
  TokenDecoder decoder;
};

// Throws Error(kCheckpoint) on anything that is damaged or not supported; the message begins with `source`.
TokenizerParts read_tokenizer(std::string_view json, const std::string& source);

}  // namespace plait::detail
