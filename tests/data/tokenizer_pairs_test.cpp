// Pairs of texts: ids, token types and cuts that Hugging Face gave for them, and files that have no form for pairs.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/data/tokenizer.h"

namespace plait {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

json read_golden(const char* name) {
  std::ifstream file(std::string(PLAIT_TEST_DATA "/golden/tokenizers/") + name);
  return json::parse(file);
}

json small_file(const std::string& name) {
  const json small = read_golden("small.json");
  for (const auto& variant : small["variants"]) {
    if (variant["name"] != name) continue;
    json file = small["bases"][variant["base"].get<std::string>()];
    for (const auto& [key, value] : variant["replace"].items()) file[key] = value;
    for (const auto& [key, value] : variant["replace_in_model"].items()) file["model"][key] = value;
    return file;
  }
  throw std::runtime_error("no variant " + name);
}

// "CODE message" of a refusal, "" when there is none.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return cat(static_cast<int>(error.code()), " ", error.what());
  }
  return "";
}

std::string refused_pair(const json& file) {
  const auto tokenizer = parse_tokenizer(file.dump(), "dir/tokenizer.json");
  EXPECT_FALSE(tokenizer->encode("the cat", true).empty());  // single texts go on
  return refusal([&] { tokenizer->encode_pair("the cat", "cats", 32); });
}

TEST(TokenizerPairs, GivesTheIdsTypesAndCutsOfHuggingFace) {
  const json golden = read_golden("pairs_small.json");
  ASSERT_EQ(golden["variants"].size(), 6u);
  int64_t cases = 0, cut = 0;
  for (const auto& variant : golden["variants"]) {
    json file = small_file(variant["variant"]);
    if (variant.contains("post_processor")) file["post_processor"] = variant["post_processor"];
    const auto tokenizer = parse_tokenizer(file.dump(), variant["name"]);
    for (const auto& entry : variant["cases"]) {
      const auto first = entry[0].get<std::string>(), second = entry[1].get<std::string>();
      const auto length = entry[2].get<int64_t>();
      const EncodedPair pair = tokenizer->encode_pair(first, second, length);
      EXPECT_EQ(pair.ids, entry[3].get<Ids>()) << variant["name"] << ": " << entry.dump();
      EXPECT_EQ(pair.token_types, entry[4].get<Ids>()) << variant["name"] << ": " << entry.dump();
      const EncodedPair whole = tokenizer->encode_pair(first, second, 1000);
      EXPECT_FALSE(whole.was_cut);
      EXPECT_EQ(pair.was_cut, static_cast<int64_t>(whole.ids.size()) > length) << entry.dump();
      cut += pair.was_cut;
      ++cases;
    }
  }
  EXPECT_EQ(cases, 453);
  EXPECT_GT(cut, 200);
}

TEST(TokenizerPairs, LengthsWithoutRoomForBothTexts) {
  const auto tokenizer = parse_tokenizer(small_file("bert").dump(), "bert");
  EXPECT_EQ(tokenizer->encode_pair("the cat", "cat the", 5).ids.size(), 5u);
  for (int64_t length : {4, 0, -1}) {
    const std::string message = refusal([&] { tokenizer->encode_pair("the", "cat", length); });
    EXPECT_NE(message.find("adds 3 special tokens to a pair, so it must be at least 5"), std::string::npos) << message;
    EXPECT_EQ(message.substr(0, 2), "2 ");
  }
  EXPECT_EQ(refusal([&] { tokenizer->encode_pair("the", "\xFF", 9); }).substr(0, 2), "3 ");
}

TEST(TokenizerPairs, FilesWithoutAFormForPairs) {
  EXPECT_EQ(refused_pair(small_file("gpt2")),
            "4 dir/tokenizer.json: it has no post_processor that joins two texts, so pairs of texts have no form; leave text_pair_col out");
  EXPECT_NE(refused_pair(small_file("qwen2: NFC")).find("no post_processor that joins"), std::string::npos);  // ByteLevel only
  json file = small_file("bert");
  file["post_processor"].erase("pair");
  EXPECT_NE(refused_pair(file).find("no template for pairs"), std::string::npos);
  file = small_file("bert");
  std::swap(file["post_processor"]["pair"][1], file["post_processor"]["pair"][3]);
  EXPECT_NE(refused_pair(file).find("the text A followed by the text B"), std::string::npos);
  file = small_file("bert");
  const json processor = file["post_processor"];
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {processor, processor}}};
  EXPECT_NE(refused_pair(file).find("two of its post_processors join texts"), std::string::npos);
}

TEST(TokenizerPairs, DamagedTemplatesAreRefused) {
  const std::vector<std::tuple<const char*, json, const char*>> faults = {
      {"/pair", "none", "post_processor.pair: must be an array"},
      {"/pair/1/Sequence/id", "C", "post_processor.pair[1].Sequence: \"C\" is no text; known: A, B"},
      {"/pair/0/SpecialToken/id", "[FOO]", "key \"[FOO]\" is missing"},
      {"/pair/3/Sequence/type_id", -1, "post_processor.pair[3].Sequence.type_id"},
      {"/pair/3/Sequence/colour", 1, "key \"colour\" is not supported"},
  };
  for (const auto& [pointer, value, piece] : faults) {
    json file = small_file("bert");
    file["post_processor"][json::json_pointer(pointer)] = value;
    const std::string message = refusal([&] { parse_tokenizer(file.dump(), "t"); });
    EXPECT_EQ(message.substr(0, 2), "4 ") << pointer;
    EXPECT_NE(message.find(piece), std::string::npos) << pointer << ": " << message;
  }
}

}  // namespace
}  // namespace plait
