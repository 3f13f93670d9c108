// The character tables and UTF-8 functions of plait/data/unicode.h.
#include "plait/data/unicode.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

int count(bool (*kind)(uint32_t)) {
  int found = 0;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c < 0xD800 || c > 0xDFFF) found += kind(c);
  }
  return found;
}

TEST(Unicode, KindsCountAsInTokenizers) {
  // Counted by asking tokenizers 0.23.3 for every code point.
  EXPECT_EQ(count(is_bert_punctuation), 726);
  EXPECT_EQ(count(is_bert_control), 137681);
  EXPECT_EQ(count(is_numeric_character), 1924);
  EXPECT_EQ(count(is_number), 1911);
  EXPECT_EQ(count(is_letter), 141028);
  EXPECT_EQ(count(is_white_space), 25);
}

TEST(Unicode, KindsOfSomeCharacters) {
  EXPECT_TRUE(is_white_space(0x85) && is_white_space(0x3000) && !is_white_space(0x180E) && !is_white_space(0x200B));
  EXPECT_TRUE(is_bert_punctuation('$') && is_bert_punctuation(0x3002) && !is_bert_punctuation(0xB2) && !is_bert_punctuation('a'));
  EXPECT_TRUE(is_bert_control(0) && is_bert_control(0xFFFD) && is_bert_control(0xE000) && !is_bert_control('\t') &&
              !is_bert_control(0x378));
  EXPECT_TRUE(is_bert_accent(0x301) && !is_bert_accent(0x903));
  EXPECT_TRUE(is_cjk_ideograph(0x4E00) && !is_cjk_ideograph(0x304B) && !is_cjk_ideograph(0xAC00) && !is_cjk_ideograph(0x2B920 - 1));
  EXPECT_TRUE(is_word_character('_') && is_word_character(0x301) && is_word_character(0x200D) && !is_word_character('-'));
  EXPECT_TRUE(is_letter(0x13AFE) && is_number(0x2167) && !is_letter(0x2167));
}

TEST(Unicode, FindsTheFirstByteThatIsNotUtf8) {
  EXPECT_FALSE(first_invalid_utf8("").has_value());
  EXPECT_FALSE(first_invalid_utf8("a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80").has_value());
  EXPECT_EQ(first_invalid_utf8("ab\x80"), 2u);
  EXPECT_EQ(first_invalid_utf8("\xC1\x81"), 0u);          // overlong
  EXPECT_EQ(first_invalid_utf8("a\xE0\x80\x80"), 1u);     // overlong
  EXPECT_EQ(first_invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(first_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(first_invalid_utf8("x\xF0\x9F\x98"), 1u);     // cut
}

TEST(Unicode, ReplacesIllFormedPartsOneByOne) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\xFF"
                                 "b"),
            "a" + r + "b");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98z"), r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xE4\xBD\xA0"), "\xE4\xBD\xA0");
}

TEST(Unicode, ReadsBackWhatItWrites) {
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x800 ? 1 : 37) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_code_point(text, c);
    size_t position = 0;
    ASSERT_EQ(next_code_point(text, position), c);
    ASSERT_EQ(position, text.size());
    ASSERT_EQ(count_code_points(text), 1);
    ASSERT_FALSE(first_invalid_utf8(text).has_value());
  }
}

TEST(Unicode, LowersAndNormalizes) {
  std::string lower;
  for (uint32_t c : {0x41u, 0x130u, 0x1E9Eu, 0x3A3u, 0x10400u}) append_lower_case(lower, c);
  EXPECT_EQ(lower, "ai\u0307\u00DF\u03C3\U00010428");
  EXPECT_EQ(normalize_unicode("e\u0301", UnicodeForm::kNfc), "\u00E9");
  EXPECT_EQ(normalize_unicode("\u00E9", UnicodeForm::kNfd), "e\u0301");
  EXPECT_EQ(normalize_unicode("\uFB01\u00B2", UnicodeForm::kNfkc), "fi2");
  EXPECT_EQ(normalize_unicode(std::string_view("a\0b", 3), UnicodeForm::kNfc), std::string("a\0b", 3));
}

}  // namespace
}  // namespace plait
