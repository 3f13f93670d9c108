#include "plait/config/scalar.h"

#include <cmath>

#include <gtest/gtest.h>

namespace plait {

TEST(Scalar, Integers) {
  EXPECT_EQ(parse_integer_text("0"), 0);
  EXPECT_EQ(parse_integer_text("-17"), -17);
  EXPECT_EQ(parse_integer_text("+3"), 3);
  EXPECT_EQ(parse_integer_text("010"), 10);
  EXPECT_EQ(parse_integer_text("1_000"), 1000);
  EXPECT_EQ(parse_integer_text("3.0"), 3);
  EXPECT_EQ(parse_integer_text("1e4"), 10000);
  EXPECT_EQ(parse_integer_text("9223372036854775807"), INT64_MAX);
  for (const char* bad :
       {"", "-", "+", "+-3", "3.5", "0x10", "1__0", "_1", "1_", "abc", "1 2", "9223372036854775808", "1e30", "inf", "nan", "true"})
    EXPECT_FALSE(parse_integer_text(bad)) << bad;
}

TEST(Scalar, Reals) {
  EXPECT_EQ(parse_real_text("2e-5"), 2e-5);
  EXPECT_EQ(parse_real_text("1e-05"), 1e-5);
  EXPECT_EQ(parse_real_text("1E6"), 1e6);
  EXPECT_EQ(parse_real_text(".5"), 0.5);
  EXPECT_EQ(parse_real_text("-3"), -3.0);
  EXPECT_EQ(parse_real_text(".inf"), INFINITY);
  EXPECT_EQ(parse_real_text("inf"), INFINITY);
  for (const char* bad : {"", ".", "-", "nan", ".nan", "0x1p3", "1e", "1e400", "1,5", "1.0.0", "--1", "five"})
    EXPECT_FALSE(parse_real_text(bad)) << bad;
}

TEST(Scalar, TruthValues) {
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "on", "1"}) EXPECT_EQ(parse_bool_text(yes), true) << yes;
  for (const char* no : {"false", "False", "no", "NO", "off", "0"}) EXPECT_EQ(parse_bool_text(no), false) << no;
  for (const char* bad : {"", "y", "n", "2", "ja", "truee"}) EXPECT_FALSE(parse_bool_text(bad)) << bad;
}

TEST(Scalar, LeadingZero) {
  EXPECT_TRUE(has_leading_zero("010"));
  EXPECT_TRUE(has_leading_zero("-08"));
  EXPECT_FALSE(has_leading_zero("0"));
  EXPECT_FALSE(has_leading_zero("0.5"));
  EXPECT_FALSE(has_leading_zero("10"));
}

}  // namespace plait
