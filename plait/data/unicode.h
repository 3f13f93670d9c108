// Code points and their kinds, as the tokenizers need them. The kinds come from tables (unicode_tables.h) that hold what
// Hugging Face's tokenizers answers for each code point, so that ids do not change with the Unicode version of a library.
// All functions are pure. Unless said otherwise, text must be valid UTF-8 (first_invalid_utf8 finds nothing).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plait {

// Byte offset of the first byte that does not belong to a well-formed character; nothing when all of text is UTF-8.
std::optional<size_t> first_invalid_utf8(std::string_view text);

// text with each maximal ill-formed part replaced by U+FFFD (Unicode 3.9, "substitution of maximal subparts").
std::string replace_invalid_utf8(std::string_view text);

// The code point that starts at `position`, which moves behind it.
uint32_t next_code_point(std::string_view text, size_t& position);

void append_code_point(std::string& out, uint32_t code_point);

int64_t count_code_points(std::string_view text);

bool is_ascii(std::string_view text);

bool is_white_space(uint32_t code_point);        // Unicode White_Space; \s of the split patterns
bool is_letter(uint32_t code_point);             // \p{L}
bool is_number(uint32_t code_point);             // \p{N}
bool is_numeric_character(uint32_t code_point);  // what the Digits step isolates: \p{N} of a newer Unicode
bool is_word_character(uint32_t code_point);     // \w: decides where an added token with single_word may stand
bool is_bert_punctuation(uint32_t code_point);   // every ASCII symbol, and P* of Unicode 9
bool is_bert_control(uint32_t code_point);       // what BERT's clean_text drops, U+0000 and U+FFFD included
bool is_bert_accent(uint32_t code_point);        // Mn of Unicode 9: what strip_accents drops after NFD
bool is_cjk_ideograph(uint32_t code_point);      // gets blanks around it in BERT; kana and hangul do not

// Lower case of one character, without regard to its neighbours: at most two code points (U+0130).
void append_lower_case(std::string& out, uint32_t code_point);

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

std::string normalize_unicode(std::string_view text, UnicodeForm form);

}  // namespace plait
