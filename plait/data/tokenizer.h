// Text to token ids, exactly as Hugging Face's `tokenizers` does with the same tokenizer.json (docs/tokenizers.md).
// A Tokenizer never changes after it is loaded: every function is const and may be called from many threads at once.
// The file's own truncation and padding sections are ignored; the caller decides both.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

// Two texts as one row; token_types as long as ids.
struct EncodedPair {
  std::vector<int32_t> ids, token_types;
  bool was_cut = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of the whole text, neither cut nor padded; add_special_tokens puts [CLS] ... [SEP], bos and the like around it
  // when the file asks for them. Throws Error(kData) when the text is not valid UTF-8.
  virtual std::vector<int32_t> encode(std::string_view utf8, bool add_special_tokens) const = 0;

  // encode(utf8, true) cut at its right end to at most max_tokens ids, keeping the special tokens: [CLS] a b [SEP].
  // was_cut (may be null) says whether ids were dropped. Throws Error(kUsage) when max_tokens leaves no room for a token
  // of the text beside the special ones.
  virtual std::vector<int32_t> encode_truncated(std::string_view utf8, int64_t max_tokens, bool* was_cut) const = 0;

  // Both texts in the file's form for pairs, [CLS] a [SEP] b [SEP], cut to at most max_tokens ids as Hugging Face's "longest_first":
  // the longer text at its right end until both are alike, then both. Throws Error(kCheckpoint) when the file has no form for pairs,
  // Error(kUsage) when max_tokens leaves no room for a token of each text, Error(kData) as encode.
  virtual EncodedPair encode_pair(std::string_view first, std::string_view second, int64_t max_tokens) const = 0;

  // Text of the ids as Hugging Face gives it (clean-up of blanks only where the file's decoder asks for it). Ids that the
  // vocabulary does not have are left out, as Hugging Face does. Bytes that form no character become U+FFFD.
  virtual std::string decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const = 0;

  // Largest id + 1, added tokens included: the embedding needs at least so many rows.
  virtual int64_t vocab_size() const = 0;

  // Number of tokens that add_special_tokens adds to every text.
  virtual int64_t num_special_tokens() const = 0;

  // Id of an entry of the vocabulary or of the added tokens, as spelled in the file ("[PAD]", "<|im_end|>").
  virtual std::optional<int32_t> token_id(std::string_view token) const = 0;

  // Spelling of an id in the file; nothing when no token has it.
  virtual std::optional<std::string> id_token(int32_t id) const = 0;
};

// Reads model_dir/tokenizer.json. Throws Error(kCheckpoint) when it is missing, damaged, or asks for something that is
// not supported: the message names the file, the component and what is known.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model_dir);

// The same from the text of a tokenizer.json; `source` names it in messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& source);

}  // namespace plait
