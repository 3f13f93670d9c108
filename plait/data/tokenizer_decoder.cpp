#include "plait/data/tokenizer_decoder.h"

#include <utility>

#include "plait/base/text.h"
#include "plait/data/byte_bpe.h"
#include "plait/data/unicode.h"

namespace plait {

namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
}

// Hugging Face's list, in its order; it sees one token at a time.
void clean_up(std::string& token) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                                                      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                                                      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) replace_all(token, from, to);
}

}  // namespace

std::string TokenDecoder::decode(const std::vector<std::string>& tokens) const {
  if (kind == Kind::kNone) return join(tokens, " ");
  std::string out;
  if (kind == Kind::kByteLevel) {
    for (const auto& token : tokens) out += byte_level_decode(token).value_or(token);
    return replace_invalid_utf8(out);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string token = tokens[i];
    if (i > 0) token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
    if (cleanup) clean_up(token);
    out += token;
  }
  return out;
}

}  // namespace plait
