// The published tokenizers of models/ against the golden lines of tests/data/golden/tokenizers. Needs what setup/fetch.sh
// brings; without it the test fails, except for SmolLM2, which only setup/fetch.sh smollm2 fetches.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "plait/data/tokenizer.h"

namespace plait {
namespace {

using nlohmann::json;

void check_golden(const std::string& model, const std::string& golden) {
  const std::string folder = std::string(PLAIT_SOURCE_DIR "/models/") + model;
  ASSERT_TRUE(std::filesystem::exists(folder + "/tokenizer.json"))
      << "models/" << model << "/tokenizer.json is not there: run setup/fetch.sh (test.sh does it) and test again";
  const auto tokenizer = load_tokenizer(folder);
  std::ifstream file(PLAIT_TEST_DATA "/golden/tokenizers/" + golden);
  std::string line;
  int lines = 0;
  while (std::getline(file, line)) {
    const json row = json::parse(line);
    const auto text = row["text"].get<std::string>();
    const auto ids = tokenizer->encode(text, true);
    EXPECT_EQ(ids, row["ids"].get<std::vector<int32_t>>()) << golden << " line " << lines;
    if (row.contains("decoded")) {
      EXPECT_EQ(tokenizer->decode(ids, true), row["decoded"].get<std::string>()) << golden << " line " << lines;
    }
    if (row.contains("decoded_equal")) {
      EXPECT_EQ(tokenizer->decode(ids, false) == text, row["decoded_equal"].get<bool>()) << golden << " line " << lines;
    }
    ++lines;
  }
  EXPECT_EQ(lines, 236);
}

TEST(TokenizerGolden, Bert) { check_golden("minilm", "tokenize_bert.jsonl"); }

// transformers' tokenizer(first, second, truncation=True, max_length=n).
TEST(TokenizerGolden, BertPairs) {
  const std::string folder = PLAIT_SOURCE_DIR "/models/minilm";
  ASSERT_TRUE(std::filesystem::exists(folder + "/tokenizer.json")) << "run setup/fetch.sh (test.sh does it) and test again";
  const auto tokenizer = load_tokenizer(folder);
  std::ifstream file(PLAIT_TEST_DATA "/golden/tokenizers/pairs_minilm.jsonl");
  std::string line;
  int lines = 0, cut = 0;
  while (std::getline(file, line)) {
    const json row = json::parse(line);
    const EncodedPair pair = tokenizer->encode_pair(row[0].get<std::string>(), row[1].get<std::string>(), row[2].get<int64_t>());
    EXPECT_EQ(pair.ids, row[3].get<std::vector<int32_t>>()) << "line " << lines;
    EXPECT_EQ(pair.token_types, row[4].get<std::vector<int32_t>>()) << "line " << lines;
    cut += pair.was_cut;
    ++lines;
  }
  EXPECT_EQ(lines, 228);
  EXPECT_GT(cut, 80);
}

TEST(TokenizerGolden, Gpt2) { check_golden("gpt2-tokenizer", "tokenize_gpt2.jsonl"); }

TEST(TokenizerGolden, SmolLm2) {
  if (!std::filesystem::exists(PLAIT_SOURCE_DIR "/models/smollm2-135m/tokenizer.json")) {
    std::cout << "NOT TESTED: models/smollm2-135m is not there (setup/fetch.sh smollm2)\n";
    GTEST_SKIP();
  }
  check_golden("smollm2-135m", "tokenize_smollm2.jsonl");
}

}  // namespace
}  // namespace plait
