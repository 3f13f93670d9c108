#include "plait/data/tokenizer_read.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>

#include "plait/base/text.h"
#include "plait/data/byte_bpe.h"
#include "plait/data/tokenizer_json.h"
#include "plait/data/wordpiece.h"

namespace plait::detail {

namespace {

void read_normalizer(const JsonPart& part, std::vector<NormalizerStep>& steps) {
  const std::string type = part.type({"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Sequence"});
  NormalizerStep step;
  if (type == "Sequence") {
    part.only({"normalizers"});
    for (const JsonPart& item : part.items("normalizers")) read_normalizer(item, steps);
    return;
  }
  if (type == "BertNormalizer") {
    part.only({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    step.kind = NormalizerStep::Kind::kBert;
    step.clean_text = part.flag("clean_text");
    step.handle_chinese = part.flag("handle_chinese_chars");
    step.lowercase = part.flag("lowercase");
    step.strip_accents = part.flag_or("strip_accents", step.lowercase);  // null: as lowercase
  } else if (type == "Lowercase") {
    part.only({});
    step.kind = NormalizerStep::Kind::kLowercase;
  } else {
    part.only({});
    step.kind = NormalizerStep::Kind::kUnicodeForm;
    step.form = type == "NFC"    ? UnicodeForm::kNfc
                : type == "NFD"  ? UnicodeForm::kNfd
                : type == "NFKC" ? UnicodeForm::kNfkc
                                 : UnicodeForm::kNfkd;
  }
  steps.push_back(step);
}

SplitBehavior read_behavior(const JsonPart& part) {
  const std::string name = part.text("behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  part.refuse("behavior \"", name, "\" is not supported; known: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

SplitStep read_split(const JsonPart& part) {
  part.only({"pattern", "behavior", "invert"});
  SplitStep step;
  step.behavior = read_behavior(part);
  step.invert = part.flag_or("invert", false);
  const JsonPart pattern = part.at("pattern");
  pattern.only({"Regex", "String"});
  if (pattern.has("String")) {
    step.kind = SplitStep::Kind::kLiteral;
    step.literal = pattern.text("String");
    if (step.literal.empty()) pattern.refuse("an empty String splits nothing");
    return step;
  }
  step.kind = SplitStep::Kind::kPattern;
  try {
    step.pattern = std::make_shared<SplitPattern>(pattern.text("Regex"));
  } catch (const std::invalid_argument& reason) {
    pattern.refuse("Regex cannot be honoured: ", std::string(reason.what()));
  }
  return step;
}

void read_pre_tokenizer(const JsonPart& part, std::vector<SplitStep>& steps) {
  const std::string type = part.type({"BertPreTokenizer", "ByteLevel", "Digits", "Split", "Sequence"});
  if (type == "Sequence") {
    part.only({"pretokenizers"});
    for (const JsonPart& item : part.items("pretokenizers")) read_pre_tokenizer(item, steps);
    return;
  }
  SplitStep step;
  if (type == "BertPreTokenizer") {
    part.only({});
    step.kind = SplitStep::Kind::kBert;
  } else if (type == "ByteLevel") {
    part.only({"add_prefix_space", "trim_offsets", "use_regex"});
    step.kind = SplitStep::Kind::kByteLevel;
    step.add_prefix_space = part.flag("add_prefix_space");
    step.use_gpt2_pattern = part.flag_or("use_regex", true);
  } else if (type == "Digits") {
    part.only({"individual_digits"});
    step.kind = SplitStep::Kind::kDigits;
    step.individual_digits = part.flag("individual_digits");
  } else {
    step = read_split(part);
  }
  steps.push_back(std::move(step));
}

Vocabulary read_vocabulary(const JsonPart& model) {
  const JsonPart part = model.at("vocab");
  if (!part.value().is_object()) part.refuse("must be an object of token to id");
  if (part.value().empty()) part.refuse("is empty");
  Vocabulary vocabulary;
  vocabulary.reserve(part.value().size());
  std::unordered_set<int32_t> seen;
  for (const auto& [token, id] : part.value().items()) {
    const int32_t number = JsonPart(id, "model.vocab[\"" + token + "\"]", model.source()).as_id();
    if (!seen.insert(number).second) part.refuse("two tokens have the id ", number, " (one is \"", token, "\")");
    vocabulary.emplace(token, number);
  }
  return vocabulary;
}

std::vector<std::pair<std::string, std::string>> read_merges(const JsonPart& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  const JsonPart list = model.at("merges");
  if (!list.value().is_array()) list.refuse("must be an array");
  merges.reserve(list.value().size());
  for (const auto& item : list.value()) {
    auto refuse = [&]() { list.refuse("merge ", merges.size(), " must be \"left right\" or [\"left\", \"right\"]"); };
    if (item.is_array()) {
      if (item.size() != 2 || !item[0].is_string() || !item[1].is_string()) refuse();
      merges.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
      continue;
    }
    if (!item.is_string()) refuse();
    const auto& line = item.get_ref<const std::string&>();
    if (line.starts_with("#version")) continue;
    const size_t blank = line.find(' ');
    if (blank == std::string::npos || line.find(' ', blank + 1) != std::string::npos) refuse();
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  return merges;
}

std::unique_ptr<WordModel> read_byte_bpe(const JsonPart& part, const Vocabulary& vocabulary) {
  part.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
             "vocab", "merges"});
  if (part.has("dropout") && !(part.at("dropout").value().is_number() && part.at("dropout").value().get<double>() == 0)) {
    part.refuse("dropout must be null or 0: ids must not be random");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!part.text_or(key, "").empty()) part.refuse(key, " \"", part.text(key), "\" is not supported; known: null or \"\"");
  }
  if (part.flag_or("byte_fallback", false)) {
    part.refuse("byte_fallback (a SentencePiece model) is not supported; known: byte-level BPE with byte_fallback false");
  }
  ByteBpeOptions options;
  if (part.has("unk_token")) options.unk_token = part.text("unk_token");
  options.fuse_unk = part.flag_or("fuse_unk", false);
  options.ignore_merges = part.flag_or("ignore_merges", false);
  options.merges = read_merges(part);
  try {
    return std::make_unique<ByteBpe>(vocabulary, options);
  } catch (const std::invalid_argument& reason) {
    part.refuse(std::string(reason.what()));
  }
}

std::unique_ptr<WordModel> read_wordpiece(const JsonPart& part, const Vocabulary& vocabulary) {
  part.only({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  WordPieceOptions options;
  options.unk_token = part.text("unk_token");
  options.continuing_prefix = part.text("continuing_subword_prefix");
  options.max_characters = part.integer("max_input_chars_per_word", 1, 1'000'000);
  try {
    return std::make_unique<WordPiece>(vocabulary, options);
  } catch (const std::invalid_argument& reason) {
    part.refuse(std::string(reason.what()));
  }
}

// The model decides which pre_tokenizer makes sense of its vocabulary.
void read_model(const JsonPart& part, const std::vector<SplitStep>& splits, TokenizerParts& parts) {
  std::string type;
  if (part.has("type")) {
    type = part.type({"WordPiece", "BPE"});
  } else {
    type = part.has("merges") ? "BPE" : "WordPiece";  // files of 2020 name no type
  }
  parts.vocabulary = read_vocabulary(part);
  auto is_kind = [](SplitStep::Kind kind) { return [kind](const SplitStep& step) { return step.kind == kind; }; };
  const auto byte_levels = std::count_if(splits.begin(), splits.end(), is_kind(SplitStep::Kind::kByteLevel));
  const auto berts = std::count_if(splits.begin(), splits.end(), is_kind(SplitStep::Kind::kBert));
  if (type == "BPE") {
    const bool last = !splits.empty() && splits.back().kind == SplitStep::Kind::kByteLevel;
    if (byte_levels != 1 || berts != 0 || !last) {
      part.refuse("BPE is supported with a pre_tokenizer that ends in its only ByteLevel step (before it: Digits, Split)");
    }
    parts.model = read_byte_bpe(part, parts.vocabulary);
  } else {
    if (byte_levels != 0 || berts == 0) part.refuse("WordPiece is supported with a BertPreTokenizer");
    parts.model = read_wordpiece(part, parts.vocabulary);
  }
}

// Hugging Face numbers added tokens itself, and a file that says otherwise was damaged or edited by hand.
void read_added_tokens(const JsonPart& file, TokenizerParts& parts) {
  if (!file.has("added_tokens")) return;
  auto next_id = static_cast<int32_t>(parts.vocabulary.size());
  std::unordered_set<std::string> seen;
  for (const JsonPart& part : file.items("added_tokens")) {
    part.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = part.text("content");
    token.id = part.at("id").as_id();
    token.special = part.flag_or("special", false);
    token.single_word = part.flag_or("single_word", false);
    token.lstrip = part.flag_or("lstrip", false);
    token.rstrip = part.flag_or("rstrip", false);
    token.normalized = part.flag_or("normalized", !token.special);
    if (token.content.empty()) part.refuse("content is empty");
    if (!seen.insert(token.content).second) part.refuse("\"", token.content, "\" is there twice");
    auto known = parts.vocabulary.find(token.content);
    const int32_t right_id = known != parts.vocabulary.end() ? known->second : next_id++;
    if (token.id != right_id) {
      part.refuse("\"", token.content, "\" has the id ", token.id, " but must have ", right_id,
                  known != parts.vocabulary.end() ? " as in model.vocab" : ", the next free one behind model.vocab");
    }
    parts.added_tokens.push_back(std::move(token));
  }
  std::stable_partition(parts.added_tokens.begin(), parts.added_tokens.end(), [](const AddedToken& token) { return token.special; });
}

// [token, id] of BertProcessing and RobertaProcessing.
int32_t read_token_pair(const JsonPart& part, const char* key) {
  const auto items = part.items(key);
  if (items.size() != 2) part.refuse(key, " must be [token, id]");
  items[0].as_text();
  return items[1].as_id();
}

void read_template(const JsonPart& part, std::vector<int32_t>& prefix, std::vector<int32_t>& suffix) {
  part.only({"single", "pair", "special_tokens"});
  bool text_seen = false;
  for (const JsonPart& item : part.items("single")) {
    item.only({"SpecialToken", "Sequence"});
    const bool is_text = item.has("Sequence");
    const JsonPart body = item.at(is_text ? "Sequence" : "SpecialToken");
    body.only({"id", "type_id"});
    if (body.integer("type_id", 0, 1'000'000) != 0) body.refuse("type_id other than 0 is not supported for single texts");
    if (is_text) {
      if (text_seen || body.text("id") != "A") body.refuse("the text \"A\" must stand in the template once");
      text_seen = true;
      continue;
    }
    const JsonPart tokens = part.at("special_tokens");
    const JsonPart token = tokens.at(body.text("id").c_str());
    token.only({"id", "ids", "tokens"});
    for (const JsonPart& id : token.items("ids")) (text_seen ? suffix : prefix).push_back(id.as_id());
  }
  if (!text_seen) part.refuse("the template has no place for the text");
}

// The template for pairs. One that plait has no use for (a text twice, the second one first) leaves `pieces` empty.
void read_pair_template(const JsonPart& part, std::vector<PairPiece>& pieces, std::string& no_pair_reason) {
  using Kind = PairPiece::Kind;
  std::string order;
  for (const JsonPart& item : part.items("pair")) {
    item.only({"SpecialToken", "Sequence"});
    const bool is_text = item.has("Sequence");
    const JsonPart body = item.at(is_text ? "Sequence" : "SpecialToken");
    body.only({"id", "type_id"});
    PairPiece piece;
    piece.token_type = static_cast<int32_t>(body.integer("type_id", 0, 1'000'000));
    const std::string name = body.text("id");
    if (is_text) {
      if (name != "A" && name != "B") body.refuse("\"", name, "\" is no text; known: A, B");
      piece.kind = name == "A" ? Kind::kFirst : Kind::kSecond;
      order += name;
      pieces.push_back(piece);
      continue;
    }
    for (const JsonPart& id : part.at("special_tokens").at(name.c_str()).items("ids")) {
      piece.id = id.as_id();
      pieces.push_back(piece);
    }
  }
  if (order == "AB") return;
  pieces.clear();
  no_pair_reason = "post_processor.pair is not the text A followed by the text B, each once";
}

// [CLS] a [SEP] b [SEP] of the old processors; RoBERTa's has two [SEP] between and one type.
std::vector<PairPiece> old_pair(int32_t cls, int32_t sep, bool roberta) {
  using Kind = PairPiece::Kind;
  const int32_t second = roberta ? 0 : 1;
  std::vector<PairPiece> pieces = {{Kind::kToken, cls, 0}, {Kind::kFirst, 0, 0}, {Kind::kToken, sep, 0}};
  if (roberta) pieces.push_back({Kind::kToken, sep, 0});
  pieces.push_back({Kind::kSecond, 0, second});
  pieces.push_back({Kind::kToken, sep, second});
  return pieces;
}

void read_post_processor(const JsonPart& part, TokenizerParts& parts) {
  const std::string type = part.type({"BertProcessing", "RobertaProcessing", "TemplateProcessing", "ByteLevel", "Sequence"});
  if (type == "Sequence") {
    part.only({"processors"});
    for (const JsonPart& item : part.items("processors")) read_post_processor(item, parts);
    return;
  }
  if (type == "ByteLevel") {  // only moves offsets, which plait has not
    part.only({"add_prefix_space", "trim_offsets", "use_regex"});
    return;
  }
  std::vector<int32_t> prefix, suffix;
  std::vector<PairPiece> pair;
  const bool joins_twice = !parts.pair.empty();
  if (type == "TemplateProcessing") {
    read_template(part, prefix, suffix);
    if (part.has("pair")) read_pair_template(part, pair, parts.no_pair_reason);
    else parts.no_pair_reason = "post_processor has no template for pairs";
  } else {
    part.only(type == "BertProcessing" ? std::vector<std::string>{"sep", "cls"}
                                       : std::vector<std::string>{"sep", "cls", "trim_offsets", "add_prefix_space"});
    prefix.push_back(read_token_pair(part, "cls"));
    suffix.push_back(read_token_pair(part, "sep"));
    pair = old_pair(prefix[0], suffix[0], type == "RobertaProcessing");
  }
  parts.pair = joins_twice ? std::vector<PairPiece>() : std::move(pair);
  if (joins_twice) parts.no_pair_reason = "two of its post_processors join texts";
  // A later processor puts its tokens around those of an earlier one.
  parts.prefix.insert(parts.prefix.begin(), prefix.begin(), prefix.end());
  parts.suffix.insert(parts.suffix.end(), suffix.begin(), suffix.end());
}

TokenDecoder read_decoder(const JsonPart& part) {
  TokenDecoder decoder;
  const std::string type = part.type({"WordPiece", "ByteLevel"});
  if (type == "WordPiece") {
    part.only({"prefix", "cleanup"});
    decoder.kind = TokenDecoder::Kind::kWordPiece;
    decoder.prefix = part.text("prefix");
    decoder.cleanup = part.flag("cleanup");
  } else {
    part.only({"add_prefix_space", "trim_offsets", "use_regex"});
    decoder.kind = TokenDecoder::Kind::kByteLevel;
  }
  return decoder;
}

void check_special_ids(const JsonPart& file, const TokenizerParts& parts) {
  std::unordered_set<int32_t> known;
  for (const auto& [token, id] : parts.vocabulary) known.insert(id);
  for (const auto& token : parts.added_tokens) known.insert(token.id);
  for (const auto* ids : {&parts.prefix, &parts.suffix}) {
    for (int32_t id : *ids) {
      if (!known.contains(id)) file.at("post_processor").refuse("adds the token id ", id, ", which no token has");
    }
  }
  for (const PairPiece& piece : parts.pair) {
    if (piece.kind == PairPiece::Kind::kToken && !known.contains(piece.id))
      file.at("post_processor").refuse("adds the token id ", piece.id, " to pairs, which no token has");
  }
}

}  // namespace

TokenizerParts read_tokenizer(std::string_view json, const std::string& source) {
  const nlohmann::json parsed = parse_json_object(json, source);
  const JsonPart file(parsed, "", source);
  // truncation and padding are read by nobody: the configuration decides both (the header says so).
  file.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"});
  if (file.has("version") && file.text("version") != "1.0")
    file.refuse("version \"", file.text("version"), "\" is not supported; known: 1.0");
  TokenizerParts parts;
  if (file.has("normalizer")) read_normalizer(file.at("normalizer"), parts.normalizer);
  if (file.has("pre_tokenizer")) read_pre_tokenizer(file.at("pre_tokenizer"), parts.splits);
  read_model(file.at("model"), parts.splits, parts);
  read_added_tokens(file, parts);
  if (file.has("post_processor")) read_post_processor(file.at("post_processor"), parts);
  if (file.has("decoder")) parts.decoder = read_decoder(file.at("decoder"));
  check_special_ids(file, parts);
  return parts;
}

}  // namespace plait::detail
