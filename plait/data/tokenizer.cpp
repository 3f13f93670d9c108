#include "plait/data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "plait/base/error.h"
#include "plait/data/tokenizer_read.h"
#include "plait/data/unicode.h"

namespace plait {

namespace {

constexpr uintmax_t kMaxTokenizerBytes = 256u << 20;

// Cuts both to `room` ids together, as truncate_encodings of `tokenizers` with LongestFirst; when both lose, the longer one (the second
// of two alike) keeps the odd token. Returns whether anything was cut.
bool cut_longest_first(size_t room, std::vector<int32_t>& a, std::vector<int32_t>& b) {
  if (a.size() + b.size() <= room) return false;
  const bool first_is_longer = a.size() > b.size();
  std::vector<int32_t>&shorter = first_is_longer ? b : a, &longer = first_is_longer ? a : b;
  shorter.resize(std::min(shorter.size(), room / 2));
  longer.resize(room - shorter.size());
  return true;
}

// added tokens -> normalizer -> added tokens that are compared normalized -> words -> ids
class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(detail::TokenizerParts parts, const std::string& source)
      : normalizer_(std::move(parts.normalizer)), splitter_(std::move(parts.splits)), model_(std::move(parts.model)),
        prefix_(std::move(parts.prefix)), suffix_(std::move(parts.suffix)), pair_(std::move(parts.pair)),
        no_pair_reason_(cat(source, ": ", parts.no_pair_reason)), decoder_(std::move(parts.decoder)), ids_(std::move(parts.vocabulary)) {
    for (const auto& token : parts.added_tokens) ids_.insert_or_assign(token.content, token.id);
    for (const auto& [token, id] : ids_) {
      tokens_.emplace(id, token);
      vocab_size_ = std::max<int64_t>(vocab_size_, int64_t{id} + 1);
    }
    add_added_tokens(parts.added_tokens, source);
  }

  std::vector<int32_t> encode(std::string_view utf8, bool add_special_tokens) const override {
    std::vector<int32_t> ids;
    if (add_special_tokens) ids = prefix_;
    append_content(utf8, SIZE_MAX, ids);
    if (add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
    return ids;
  }

  std::vector<int32_t> encode_truncated(std::string_view utf8, int64_t max_tokens, bool* was_cut) const override {
    if (max_tokens <= num_special_tokens()) {
      throw_error(ExitCode::kUsage, "a length of ", max_tokens, " tokens leaves no room for text: the tokenizer adds ",
                  num_special_tokens(), " special tokens, so it must be at least ", num_special_tokens() + 1);
    }
    const auto room = static_cast<size_t>(max_tokens);
    std::vector<int32_t> ids = prefix_;
    append_content(utf8, room - suffix_.size(), ids);
    const bool cut = ids.size() + suffix_.size() > room;
    if (cut) ids.resize(room - suffix_.size());
    if (was_cut != nullptr) *was_cut = cut;
    ids.insert(ids.end(), suffix_.begin(), suffix_.end());
    return ids;
  }

  EncodedPair encode_pair(std::string_view first, std::string_view second, int64_t max_tokens) const override {
    if (pair_.empty()) throw_error(ExitCode::kCheckpoint, no_pair_reason_, ", so pairs of texts have no form; leave text_pair_col out");
    const int64_t num_special = static_cast<int64_t>(pair_.size()) - 2;
    if (max_tokens < num_special + 2) {
      throw_error(ExitCode::kUsage, "a length of ", max_tokens, " tokens leaves no room for two texts: the tokenizer adds ", num_special,
                  " special tokens to a pair, so it must be at least ", num_special + 2);
    }
    std::vector<int32_t> a, b;
    append_content(first, SIZE_MAX, a);
    append_content(second, SIZE_MAX, b);
    EncodedPair out;
    out.was_cut = cut_longest_first(static_cast<size_t>(max_tokens - num_special), a, b);
    for (const detail::PairPiece& piece : pair_) {
      if (piece.kind == detail::PairPiece::Kind::kToken) {
        out.ids.push_back(piece.id);
      } else {
        const auto& text = piece.kind == detail::PairPiece::Kind::kFirst ? a : b;
        out.ids.insert(out.ids.end(), text.begin(), text.end());
      }
      out.token_types.resize(out.ids.size(), piece.token_type);
    }
    return out;
  }

  std::string decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const override {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (int32_t id : ids) {
      auto token = tokens_.find(id);
      if (token == tokens_.end() || (skip_special_tokens && special_ids_.contains(id))) continue;
      tokens.push_back(token->second);
    }
    return decoder_.decode(tokens);
  }

  int64_t vocab_size() const override { return vocab_size_; }

  int64_t num_special_tokens() const override { return static_cast<int64_t>(prefix_.size() + suffix_.size()); }

  std::optional<int32_t> token_id(std::string_view token) const override {
    auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  std::optional<std::string> id_token(int32_t id) const override {
    auto found = tokens_.find(id);
    return found == tokens_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  void add_added_tokens(const std::vector<AddedToken>& added_tokens, const std::string& source) {
    std::vector<std::pair<std::string, AddedToken>> literal, normalized;
    std::unordered_set<std::string> special;
    for (const auto& token : added_tokens) {
      if (token.special) special.insert(token.content);
      std::string spelling = token.normalized ? normalizer_.apply(token.content) : token.content;
      if (spelling.empty()) {
        throw_error(ExitCode::kCheckpoint, source, ": added_tokens: nothing is left of \"", token.content,
                    "\" after the normalizer; known: normalized false");
      }
      (token.normalized ? normalized : literal).emplace_back(spelling, token);
      // As Hugging Face does it, decode shows a normalized token as the normalizer left it.
      tokens_.insert_or_assign(token.id, std::move(spelling));
    }
    for (const auto& token : added_tokens) {
      if (special.contains(tokens_.at(token.id))) special_ids_.insert(token.id);
    }
    literal_ = AddedTokenMatcher(literal);
    normalized_ = AddedTokenMatcher(normalized);
  }

  // Ids of the text without special tokens around it; may stop as soon as ids holds more than `enough`.
  void append_content(std::string_view utf8, size_t enough, std::vector<int32_t>& ids) const {
    if (auto offset = first_invalid_utf8(utf8)) throw_error(ExitCode::kData, "the text is not valid UTF-8 at byte ", *offset);
    for (const auto& span : literal_.split(utf8)) {
      if (ids.size() > enough) return;
      const std::string_view text = utf8.substr(span.begin, span.end - span.begin);
      if (span.id >= 0) {
        ids.push_back(span.id);
      } else if (normalizer_.changes_nothing()) {
        append_normalized(text, enough, ids);
      } else {
        append_normalized(normalizer_.apply(text), enough, ids);
      }
    }
  }

  void append_normalized(std::string_view text, size_t enough, std::vector<int32_t>& ids) const {
    for (const auto& span : normalized_.split(text)) {
      if (ids.size() > enough) return;
      if (span.id >= 0) {
        ids.push_back(span.id);
        continue;
      }
      splitter_.split(text.substr(span.begin, span.end - span.begin), [&](std::string_view word) {
        model_->encode_word(word, ids);
        return ids.size() <= enough;
      });
    }
  }

  Normalizer normalizer_;
  WordSplitter splitter_;
  std::unique_ptr<WordModel> model_;
  AddedTokenMatcher literal_, normalized_;
  std::vector<int32_t> prefix_, suffix_;
  std::vector<detail::PairPiece> pair_;
  std::string no_pair_reason_;
  TokenDecoder decoder_;
  Vocabulary ids_;
  std::unordered_map<int32_t, std::string> tokens_;
  std::unordered_set<int32_t> special_ids_;
  int64_t vocab_size_ = 0;
};

std::string read_tokenizer_file(const std::filesystem::path& path) {
  std::error_code failure;
  const uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure) throw_error(ExitCode::kCheckpoint, path.string(), ": cannot be read: ", failure.message());
  if (size > kMaxTokenizerBytes) {
    throw_error(ExitCode::kCheckpoint, path.string(), ": ", static_cast<uint64_t>(size), " bytes; at most ",
                static_cast<uint64_t>(kMaxTokenizerBytes), " are read");
  }
  std::string text(static_cast<size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) throw_error(ExitCode::kCheckpoint, path.string(), ": cannot be read");
  return text;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& source) {
  return std::make_unique<JsonTokenizer>(detail::read_tokenizer(json, source), source);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model_dir) {
  const std::filesystem::path folder(model_dir);
  const std::filesystem::path path = folder / "tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    const bool has_others = std::filesystem::exists(folder / "vocab.txt", ignored) ||
                            std::filesystem::exists(folder / "vocab.json", ignored) ||
                            std::filesystem::exists(folder / "tokenizer.model", ignored);
    throw_error(ExitCode::kCheckpoint, path.string(),
                ": no such file. A model folder needs config.json, model.safetensors and tokenizer.json",
                has_others ? "; its other tokenizer files are not read: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of "
                             "transformers writes tokenizer.json from them"
                           : "");
  }
  return parse_tokenizer(read_tokenizer_file(path), path.string());
}

}  // namespace plait
