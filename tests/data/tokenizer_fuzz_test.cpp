// Random bytes as text and as tokenizer.json: an Error or an answer, never a crash. Fixed seeds.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "plait/base/error.h"
#include "plait/data/tokenizer.h"
#include "plait/data/unicode.h"

namespace plait {
namespace {

using nlohmann::json;

json read_small() {
  std::ifstream file(PLAIT_TEST_DATA "/golden/tokenizers/small.json");
  return json::parse(file);
}

std::string random_text(std::mt19937_64& random, bool valid) {
  static const char* const kPieces[] = {"hello",     " world", "<|end|>", "[CLS]",      "[MASK]",  "  ",  "\n",  "'s",
                                        "caf\u00e9", "123",    "\u4f60",  "\U0001F600", "e\u0301", "<m>", "abc", "!!!!"};
  std::string text;
  const auto pieces = random() % 12;
  for (uint64_t i = 0; i < pieces; ++i) {
    switch (random() % 3) {
      case 0: text += kPieces[random() % std::size(kPieces)]; break;
      case 1: append_code_point(text, static_cast<uint32_t>(random() % 0xD800)); break;
      default:
        if (valid) {
          append_code_point(text, static_cast<uint32_t>(0xE000 + random() % (0x110000 - 0xE000)));
        } else {
          text.push_back(static_cast<char>(random() % 256));
        }
    }
  }
  return text;
}

TEST(TokenizerFuzz, AnyTextGivesIdsInRangeOrARefusal) {
  const json small = read_small();
  std::mt19937_64 random(7);
  int64_t refused = 0;
  for (const auto& variant : small["variants"]) {
    json file = small["bases"][variant["base"].get<std::string>()];
    for (const auto& [key, value] : variant["replace"].items()) file[key] = value;
    for (const auto& [key, value] : variant["replace_in_model"].items()) file["model"][key] = value;
    const auto tokenizer = parse_tokenizer(file.dump(), "fuzz");
    for (int i = 0; i < 400; ++i) {
      const std::string text = random_text(random, i % 2 == 0);
      try {
        const auto ids = tokenizer->encode(text, true);
        ASSERT_FALSE(first_invalid_utf8(text).has_value());
        for (int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer->vocab_size());
        ASSERT_FALSE(first_invalid_utf8(tokenizer->decode(ids, false)).has_value());
        const auto cut = tokenizer->encode_truncated(text, 5, nullptr);
        ASSERT_LE(cut.size(), 5u);
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ExitCode::kData);
        ASSERT_TRUE(first_invalid_utf8(text).has_value());
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(TokenizerFuzz, ByteBpeWithoutSplitLossesGivesTheTextBack) {
  const json small = read_small();
  const auto tokenizer = parse_tokenizer(small["bases"]["bpe"].dump(), "fuzz");
  std::mt19937_64 random(8);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random, true);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text, true), false), text);
  }
}

TEST(TokenizerFuzz, DamagedFilesAreRefusedOrWork) {
  const json small = read_small();
  std::mt19937_64 random(9);
  int64_t refused = 0;
  for (const char* base : {"bpe", "wordpiece"}) {
    const std::string whole = small["bases"][base].dump();
    for (int i = 0; i < 1500; ++i) {
      std::string text = whole;
      for (uint64_t n = 1 + random() % 3; n > 0; --n) {
        const size_t at = random() % text.size();
        switch (random() % 4) {
          case 0: text[at] = static_cast<char>(random() % 256); break;
          case 1: text.erase(at, 1 + random() % 20); break;
          case 2: text.insert(at, text.substr(random() % text.size(), random() % 30)); break;
          default: text[at] = "0123456789{}[],:\"-"[random() % 18]; break;
        }
      }
      try {
        const auto tokenizer = parse_tokenizer(text, "fuzz");
        tokenizer->decode(tokenizer->encode("hello the cat [MASK] 123", true), true);
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
        ++refused;
      }
    }
    for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 200) {
      EXPECT_THROW(parse_tokenizer(std::string_view(whole).substr(0, size), "fuzz"), Error);
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace plait
