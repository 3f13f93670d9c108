// Every rule of docs/tokenizers.md on tiny tokenizer files, against ids that Hugging Face's tokenizers gave for them.
#include "plait/data/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "plait/base/error.h"

namespace plait {
namespace {

using nlohmann::json;

json read_small() {
  std::ifstream file(PLAIT_TEST_DATA "/golden/tokenizers/small.json");
  return json::parse(file);
}

json file_of(const json& small, const json& variant) {
  json file = small["bases"][variant["base"].get<std::string>()];
  for (const auto& [key, value] : variant["replace"].items()) file[key] = value;
  for (const auto& [key, value] : variant["replace_in_model"].items()) file["model"][key] = value;
  return file;
}

std::unique_ptr<Tokenizer> small_tokenizer(const std::string& name) {
  const json small = read_small();
  for (const auto& variant : small["variants"]) {
    if (variant["name"] == name) return parse_tokenizer(file_of(small, variant).dump(), name);
  }
  throw std::runtime_error("no variant " + name);
}

ExitCode code_of(const std::function<void()>& action, std::string* message = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  return ExitCode::kOk;
}

TEST(Tokenizer, GivesTheIdsAndTextsOfHuggingFaceForEveryRule) {
  const json small = read_small();
  ASSERT_EQ(small["variants"].size(), 32u);
  int64_t cases = 0;
  for (const auto& variant : small["variants"]) {
    const auto name = variant["name"].get<std::string>();
    const auto tokenizer = parse_tokenizer(file_of(small, variant).dump(), name);
    for (const auto& entry : variant["cases"]) {
      const auto text = entry[0].get<std::string>();
      const auto ids = tokenizer->encode(text, true);
      EXPECT_EQ(ids, entry[1].get<std::vector<int32_t>>()) << name << ": " << entry[0].dump();
      EXPECT_EQ(tokenizer->decode(ids, true), entry[2].get<std::string>()) << name << ": " << entry[0].dump();
      EXPECT_EQ(tokenizer->decode(ids, false), entry[3].get<std::string>()) << name << ": " << entry[0].dump();
      ++cases;
    }
  }
  EXPECT_EQ(cases, 24 * 30 + 8 * 22);
}

TEST(Tokenizer, IgnoresTruncationAndPaddingOfTheFile) {
  // The base file asks for truncation to 4 and padding to 8.
  const auto tokenizer = small_tokenizer("bert");
  EXPECT_EQ(tokenizer->encode("the", true).size(), 3u);
  EXPECT_EQ(tokenizer->encode("the cat sit the cat", true).size(), 7u);
}

TEST(Tokenizer, LeavesSpecialTokensOutWhenAsked) {
  const auto tokenizer = small_tokenizer("bert");
  EXPECT_EQ(tokenizer->num_special_tokens(), 2);
  const auto with = tokenizer->encode("the cat", true);
  const auto without = tokenizer->encode("the cat", false);
  EXPECT_EQ(without, std::vector<int32_t>(with.begin() + 1, with.end() - 1));
  EXPECT_EQ(small_tokenizer("gpt2")->num_special_tokens(), 0);
  EXPECT_EQ(small_tokenizer("llama3: pattern, ignore_merges, bos")->num_special_tokens(), 1);
}

TEST(Tokenizer, CutsAtTheRightAndKeepsSpecialTokens) {
  for (const char* name : {"bert", "gpt2", "llama3: pattern, ignore_merges, bos"}) {
    const auto tokenizer = small_tokenizer(name);
    const std::string text = "the cat, the hello world! 123 abc cats <|end|> [MASK] x sitting";
    const auto whole = tokenizer->encode(text, false);
    const auto framed = tokenizer->encode("", true);
    const auto all = static_cast<int64_t>(whole.size()) + tokenizer->num_special_tokens();
    for (int64_t length = tokenizer->num_special_tokens() + 1; length <= all + 2; ++length) {
      bool cut = false;
      const auto ids = tokenizer->encode_truncated(text, length, &cut);
      EXPECT_EQ(cut, length < all) << name << " " << length;
      ASSERT_EQ(static_cast<int64_t>(ids.size()), std::min(length, all)) << name << " " << length;
      const size_t before = tokenizer->num_special_tokens() > 0 ? 1 : 0;
      const size_t behind = tokenizer->num_special_tokens() > 1 ? 1 : 0;
      for (size_t i = before; i + behind < ids.size(); ++i) ASSERT_EQ(ids[i], whole[i - before]) << name << " " << length;
      if (before == 1) {
        EXPECT_EQ(ids.front(), framed.front());
      }
      if (behind == 1) {
        EXPECT_EQ(ids.back(), framed.back());
      }
    }
    EXPECT_EQ(tokenizer->encode_truncated(text, all, nullptr), tokenizer->encode(text, true));
  }
}

TEST(Tokenizer, RefusesALengthWithoutRoomForText) {
  const auto tokenizer = small_tokenizer("bert");
  std::string message;
  for (int64_t length : {2, 0, -5}) {
    EXPECT_EQ(code_of([&] { tokenizer->encode_truncated("the", length, nullptr); }, &message), ExitCode::kUsage);
    EXPECT_NE(message.find("at least 3"), std::string::npos) << message;
  }
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const auto bert = small_tokenizer("bert");
  const auto gpt2 = small_tokenizer("gpt2");
  for (std::string text : {"a\xFF", "\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80", "ok \xE4\xBD", "\x80"}) {
    EXPECT_EQ(code_of([&] { bert->encode(text, true); }), ExitCode::kData);
    EXPECT_EQ(code_of([&] { gpt2->encode(text, true); }), ExitCode::kData);
    EXPECT_EQ(code_of([&] { gpt2->encode_truncated(text, 1, nullptr); }), ExitCode::kData);
  }
  std::string message;
  code_of([&] { gpt2->encode("abc\xFF", true); }, &message);
  EXPECT_NE(message.find("byte 3"), std::string::npos) << message;
}

TEST(Tokenizer, NamesItsTokens) {
  const auto tokenizer = small_tokenizer("added tokens with flags");
  const int32_t end = tokenizer->token_id("<|end|>").value();
  EXPECT_EQ(tokenizer->id_token(end), "<|end|>");
  EXPECT_EQ(tokenizer->vocab_size(), tokenizer->token_id("--").value() + 1);
  EXPECT_FALSE(tokenizer->token_id("no such token").has_value());
  EXPECT_FALSE(tokenizer->id_token(-1).has_value());
  EXPECT_FALSE(tokenizer->id_token(static_cast<int32_t>(tokenizer->vocab_size())).has_value());
  EXPECT_EQ(tokenizer->decode({-1, 1 << 30, *tokenizer->token_id("hello")}, true), "hello");
}

TEST(Tokenizer, DecodesBytesThatFormNoCharacterAsReplacement) {
  const auto tokenizer = small_tokenizer("gpt2");
  const auto ids = tokenizer->encode("\xE4\xBD\xA0", false);  // three bytes, three tokens
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(tokenizer->decode(ids, true), "\xE4\xBD\xA0");
  EXPECT_EQ(tokenizer->decode({ids[0], ids[1]}, true), "\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->decode({ids[1], ids[2]}, true), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Tokenizer, GivesTheSameIdsToManyThreadsAtOnce) {
  const auto tokenizer = small_tokenizer("gpt2");
  auto text_of = [](int i) { return "hello world " + std::to_string(i % 37) + " abcabc" + std::string(static_cast<size_t>(i % 11), 'l'); };
  std::vector<std::vector<int32_t>> expected;
  {
    const auto alone = small_tokenizer("gpt2");
    for (int i = 0; i < 400; ++i) expected.push_back(alone->encode(text_of(i), true));
  }
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 400; ++i)
        wrong[static_cast<size_t>(t)] += tokenizer->encode(text_of(i), true) != expected[static_cast<size_t>(i)];
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, LongWordsTakeTimeInProportion) {
  // A quadratic merge or match would not end within the test's time limit.
  const std::string letters(1'000'000, 'l');
  const std::string blanks(1'000'000, ' ');
  for (const char* name : {"gpt2", "llama3: pattern, ignore_merges, bos", "smollm2: single digits"}) {
    const auto tokenizer = small_tokenizer(name);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(letters, false), true), letters);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(blanks + "x", false), true), blanks + "x");
  }
  EXPECT_EQ(small_tokenizer("bert")->encode(letters, false).size(), 1u);
}

}  // namespace
}  // namespace plait
