// What a tokenizer.json may not hold: each fault is refused with exit code 4 and a message that names file, place and rule.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/data/tokenizer.h"

namespace plait {
namespace {

using nlohmann::json;

json base_file(const char* name) {
  std::ifstream file(PLAIT_TEST_DATA "/golden/tokenizers/small.json");
  return json::parse(file)["bases"][name];
}

// The message of the refusal; "" and a failed test when there is none or its code is another.
std::string refusal(const std::string& text) {
  try {
    parse_tokenizer(text, "dir/tokenizer.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("dir/tokenizer.json: ", 0), 0u) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

struct Fault {
  const char* base;
  const char* pointer;  // where in the file
  json value;
  const char* message;  // part of it
};

TEST(TokenizerRefusals, UnknownComponentsAndKeysAreNamed) {
  const Fault faults[] = {
      {"bpe", "/normalizer", {{"type", "Precompiled"}}, "\"Precompiled\" is not supported; known: BertNormalizer, NFC"},
      {"bpe", "/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer: type \"Metaspace\" is not supported; known: BertPreTokenizer"},
      {"bpe", "/pre_tokenizer/type", 7, "pre_tokenizer.type: must be a string"},
      {"bpe", "/pre_tokenizer/new_option", true, "key \"new_option\" is not supported; known: add_prefix_space"},
      {"bpe", "/post_processor", {{"type", "Odd"}}, "known: BertProcessing"},
      {"bpe", "/decoder", {{"type", "Metaspace"}}, "decoder: type \"Metaspace\" is not supported; known: WordPiece, ByteLevel"},
      {"bpe", "/model/type", "Unigram", "model: type \"Unigram\" is not supported; known: WordPiece, BPE"},
      {"bpe", "/model/dropout", 0.1, "dropout must be null or 0"},
      {"bpe", "/model/byte_fallback", true, "byte_fallback"},
      {"bpe", "/model/end_of_word_suffix", "</w>", "end_of_word_suffix \"</w>\""},
      {"bpe", "/model/vocab_size", 3, "key \"vocab_size\""},
      {"bpe", "/extra", 1, "the top level: key \"extra\" is not supported"},
      {"bpe", "/version", "2.0", "version \"2.0\""},
      {"bpe", "/added_tokens/0/colour", "red", "added_tokens[0]: key \"colour\""},
      {"wordpiece", "/normalizer/fold", true, "normalizer: key \"fold\""},
      {"wordpiece", "/post_processor/single/1/Sequence/id", "B", "must stand in the template once"},
      {"wordpiece", "/post_processor/single/0/SpecialToken/type_id", 1, "type_id other than 0"},
  };
  for (const auto& fault : faults) {
    json file = base_file(fault.base);
    file[json::json_pointer(fault.pointer)] = fault.value;
    const std::string message = refusal(file.dump());
    EXPECT_NE(message.find(fault.message), std::string::npos) << fault.pointer << ": " << message;
  }
}

TEST(TokenizerRefusals, DamagedContentsAreNamed) {
  const Fault faults[] = {
      {"bpe", "/model/merges/3", json::array({"he", "zz"}), "merge 3 names \"zz\""},
      {"bpe", "/model/merges/3", json::array({"a", "a"}), "merge 3 names \"aa\""},
      {"bpe", "/model/merges/3", "three parts here", "merge 3 must be"},
      {"bpe", "/model/merges/3", json::array({"a"}), "merge 3 must be"},
      {"bpe", "/model/merges/3", 5, "merge 3 must be"},
      {"bpe", "/model/merges", "none", "model.merges: must be an array"},
      {"bpe", "/model/unk_token", "<unk>", "unk_token names \"<unk>\""},
      {"bpe", "/model/vocab", json::object(), "model.vocab: is empty"},
      {"bpe", "/model/vocab", json::array({"a"}), "model.vocab: must be an object"},
      {"bpe", "/model/vocab/hello", -1, "model.vocab[\"hello\"]: must be a token id"},
      {"bpe", "/model/vocab/hello", 1e9, "must be a token id"},
      {"bpe", "/model/vocab/hello", 1u << 30, "must be a token id"},
      {"bpe", "/model/vocab/hello", 5, "two tokens have the id 5"},
      {"bpe", "/model", nullptr, "must be an object"},
      {"bpe", "/added_tokens/0/id", 3, "\"<|end|>\" has the id 3 but must have"},
      {"bpe", "/added_tokens/0/content", "hello", "but must have"},
      {"bpe", "/added_tokens/0/content", "", "content is empty"},
      {"bpe", "/added_tokens/0/special", "yes", "must be true or false"},
      {"bpe", "/pre_tokenizer", nullptr, "ByteLevel"},
      {"bpe", "/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "ByteLevel"},
      {"wordpiece", "/pre_tokenizer", nullptr, "BertPreTokenizer"},
      {"wordpiece", "/model/unk_token", "[NONE]", "unk_token \"[NONE]\" is not in the vocabulary"},
      {"wordpiece", "/model/max_input_chars_per_word", 0, "0 is not in 1 ..."},
      {"wordpiece", "/model/max_input_chars_per_word", 1.5, "must be a whole number"},
      {"wordpiece", "/post_processor/special_tokens/[CLS]/ids/0", 4000, "the token id 4000, which no token has"},
      {"wordpiece", "/post_processor/single", json::array(), "no place for the text"},
      {"wordpiece", "/post_processor/special_tokens", json::object(), "key \"[CLS]\" is missing"},
  };
  for (const auto& fault : faults) {
    json file = base_file(fault.base);
    file[json::json_pointer(fault.pointer)] = fault.value;
    const std::string message = refusal(file.dump());
    EXPECT_NE(message.find(fault.message), std::string::npos) << fault.pointer << ": " << message;
  }
}

TEST(TokenizerRefusals, EveryKeyIsNeededOrHasADefault) {
  // Taking any one key out gives a tokenizer or a refusal with a message, never a crash.
  for (const char* base : {"bpe", "wordpiece"}) {
    const json whole = base_file(base);
    for (const auto& [section, unused] : whole.items()) {
      json file = whole;
      file.erase(section);
      try {
        parse_tokenizer(file.dump(), "t");
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
      }
      if (!whole[section].is_object()) continue;
      for (const auto& [key, value] : whole[section].items()) {
        file = whole;
        file[section].erase(key);
        try {
          parse_tokenizer(file.dump(), "t");
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
        }
      }
    }
  }
}

TEST(TokenizerRefusals, SplitPatternsThatMeanSomethingElseElsewhere) {
  auto with_pattern = [](const std::string& pattern) {
    json file = base_file("bpe");
    const json byte_level = file["pre_tokenizer"];
    file["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}, byte_level}}};
    return file.dump();
  };
  for (const char* pattern : {"\\w+", "\\h", "^a", "a$", "(", "[a", "[a[b]]", "[a&&b]", "\\p{Nonsense}", "\\p", "a\\", "(?<name>a)",
                              "\\p{N}{1,3}+", "(?m)a", "[\\S]", "\\x41", "*"}) {
    const std::string message = refusal(with_pattern(pattern));
    EXPECT_NE(message.find("pre_tokenizer.pretokenizers[0].pattern: Regex cannot be honoured"), std::string::npos)
        << pattern << ": " << message;
  }
  for (const char* pattern : {"\\s+(?!\\S)", "[^\\s\\p{L}]", "\\u4e00|\\x{4E01}", "(?i:ab)", "\\p{N}{1,3}", "(?>a|b)", "[\\]\\-]"}) {
    EXPECT_NO_THROW(parse_tokenizer(with_pattern(pattern), "t")) << pattern;
  }
}

TEST(TokenizerRefusals, ByteLevelMustBeTheLastStepOfBpe) {
  json file = base_file("bpe");
  const json byte_level = file["pre_tokenizer"];
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {byte_level, digits}}};
  EXPECT_NE(refusal(file.dump()).find("ends in its only ByteLevel step"), std::string::npos);
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {byte_level, byte_level}}};
  EXPECT_NE(refusal(file.dump()).find("ends in its only ByteLevel step"), std::string::npos);
}

TEST(TokenizerRefusals, TextThatIsNoJsonObject) {
  EXPECT_NE(refusal("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"model\": ").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": \"\xFF\"}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("[1, 2]").find("one JSON object"), std::string::npos);
  const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_NE(refusal(deep).find("nested deeper"), std::string::npos);
}

TEST(TokenizerRefusals, AFolderWithoutTokenizerSaysWhatItNeeds) {
  const auto folder = std::filesystem::temp_directory_path() / ("plait_tokenizer_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  auto message_of = [&] {
    try {
      load_tokenizer(folder.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
      return std::string(error.what());
    }
    return std::string();
  };
  std::string message = message_of();
  EXPECT_NE(message.find((folder / "tokenizer.json").string()), std::string::npos) << message;
  EXPECT_NE(message.find("config.json, model.safetensors and tokenizer.json"), std::string::npos) << message;
  EXPECT_EQ(message.find("save_pretrained"), std::string::npos) << message;
  std::ofstream(folder / "vocab.txt") << "[UNK]\n";
  message = message_of();
  EXPECT_NE(message.find("save_pretrained"), std::string::npos) << message;
  std::filesystem::create_directory(folder / "tokenizer.json");
  EXPECT_NE(message_of().find("cannot be read"), std::string::npos);
  std::filesystem::remove(folder / "tokenizer.json");
  std::ofstream(folder / "tokenizer.json") << base_file("wordpiece").dump();
  EXPECT_EQ(load_tokenizer(folder.string())->token_id("[SEP]"), 3);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace plait
