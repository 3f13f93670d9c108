#include "plait/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace plait {
namespace {

// Every code point encoded by the plain rule; surrogates must be refused, the rest accepted.
std::string encode(uint32_t c) {
  std::string s;
  if (c < 0x80) {
    s.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    s = {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
  } else if (c < 0x10000) {
    s = {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
  } else {
    s = {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)), static_cast<char>(0x80 | (c >> 6 & 63)),
         static_cast<char>(0x80 | (c & 63))};
  }
  return s;
}

TEST(Utf8, EveryCodePoint) {
  for (uint32_t c = 0; c < 0x110000 + 0x1000; ++c) {
    bool valid = c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);
    ASSERT_EQ(is_valid_utf8(encode(c)), valid) << c;
  }
}

TEST(Utf8, FirstFaultIsNamed) {
  EXPECT_EQ(first_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("plain ascii, long enough for words"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("0123456789ab\xff"), 12u);
  EXPECT_EQ(first_invalid_utf8("caf\xe9 au lait"), 3u);   // Latin-1
  EXPECT_EQ(first_invalid_utf8("\xc0\xaf"), 0u);          // overlong
  EXPECT_EQ(first_invalid_utf8("a\xe2\x82"), 1u);         // cut at the end
  EXPECT_EQ(first_invalid_utf8("\xe2\x82\xac\x80"), 3u);  // stray continuation
  EXPECT_EQ(first_invalid_utf8("\xf4\x90\x80\x80"), 0u);  // U+110000
  EXPECT_EQ(first_invalid_utf8(std::string("a\0b", 3)), std::nullopt);
}

}  // namespace
}  // namespace plait
