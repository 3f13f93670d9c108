#include "plait/config/setting_tree.h"

#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "tests/config/settings_text.h"

namespace plait {

namespace {
using testing::contains;

std::string error_of(const std::string& text, const std::string& name = "s.yaml") {
  try {
    parse_settings(text, name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

std::string repeat(const std::string& piece, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += piece;
  return out;
}
}  // namespace

TEST(SettingTree, PlacesOfYamlAndJson) {
  SettingNode yaml = parse_settings("a: 1\nb:\n  c: [x,\n     y]\n", "dir/s.yaml");
  EXPECT_EQ(yaml.find("a")->origin, "dir/s.yaml:1");
  EXPECT_EQ(yaml.find("b")->find("c")->items[1].origin, "dir/s.yaml:4");
  SettingNode json = parse_settings("{\n \"a\": 12\n,\n \"b\": [1.50,\n true,\n null, \"x\\ny\"],\n\"c\": {}\n}\n", "s.json");
  EXPECT_EQ(json.find("a")->origin, "s.json:2");
  EXPECT_EQ(json.entries[1].origin, "s.json:4");
  EXPECT_EQ(json.find("b")->items[0].text, "1.50");
  EXPECT_EQ(json.find("b")->items[0].origin, "s.json:4");
  EXPECT_EQ(json.find("b")->items[1].origin, "s.json:5");
  EXPECT_TRUE(json.find("b")->items[2].is_null());
  EXPECT_EQ(json.find("b")->items[3].text, "x\ny");
  EXPECT_EQ(json.entries[2].origin, "s.json:7");
}

TEST(SettingTree, MergesAndAnchors) {
  SettingNode root = parse_settings(
      "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\none: {<<: *b, y: 5}\ntwo:\n  <<: [*m, *b]\n  w: 6\nthree: {<<: {q: 1}}\n", "s.yaml");
  EXPECT_EQ(root.find("one")->find("x")->text, "1");
  EXPECT_EQ(root.find("one")->find("y")->text, "5");
  EXPECT_EQ(root.find("one")->find("x")->origin, "s.yaml:1");
  EXPECT_EQ(root.find("two")->find("y")->text, "3");
  EXPECT_EQ(root.find("two")->find("x")->text, "1");
  EXPECT_EQ(root.find("two")->find("w")->text, "6");
  EXPECT_EQ(root.find("three")->find("q")->text, "1");
  EXPECT_TRUE(root.find("base")->reused);
  EXPECT_FALSE(root.find("one")->reused);
  // A quoted << is a word.
  EXPECT_EQ(parse_settings("\"<<\": 1\n", "s.yaml").find("<<")->text, "1");
}

TEST(SettingTree, ScalarsStayText) {
  SettingNode root = parse_settings("a: no\nb: 010\nc: ~\nd:\ne: 'null'\nf: 2e-5\ng: !!str 12\n", "s.yaml");
  EXPECT_EQ(root.find("a")->text, "no");
  EXPECT_EQ(root.find("b")->text, "010");
  EXPECT_TRUE(root.find("c")->is_null());
  EXPECT_TRUE(root.find("d")->is_null());
  EXPECT_EQ(root.find("e")->text, "null");
  EXPECT_EQ(root.find("g")->text, "12");
}

TEST(SettingTree, Refusals) {
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n"), "s.yaml:3: duplicate key a (first at s.yaml:1)");
  EXPECT_EQ(error_of("{\"a\": 1,\n\"a\": 2}", "s.json"), "s.json:2: duplicate key a (first at s.json:1)");
  EXPECT_EQ(error_of("a: {b: 1, b: 1}\n"), "s.yaml:1: duplicate key b (first at s.yaml:1)");
  EXPECT_TRUE(contains(error_of("- 1\n- 2\n"), "a settings file is a map"));
  EXPECT_TRUE(contains(error_of("[1]", "s.json"), "a settings file is a map"));
  EXPECT_TRUE(contains(error_of("just words\n"), "a settings file is a map"));
  EXPECT_TRUE(contains(error_of("a: 1\n---\nb: 2\n"), "second document"));
  EXPECT_TRUE(contains(error_of("a: [1, 2\nb: 3\n"), "s.yaml:"));
  EXPECT_TRUE(contains(error_of("a: 1\n b: 2\n"), "s.yaml:2: not YAML"));
  EXPECT_TRUE(contains(error_of("a: *nobody\n"), "s.yaml:1: not YAML"));
  EXPECT_TRUE(contains(error_of("a: &x [*x]\n"), "alias inside the value"));
  EXPECT_TRUE(contains(error_of("a: {<<: 3}\n"), "merges maps"));
  EXPECT_TRUE(contains(error_of("? [1, 2]\n: 3\n"), "a key must be a word"));
  EXPECT_TRUE(contains(error_of("a: !!python/object:os.system x\n"), "tag"));
  EXPECT_TRUE(contains(error_of("a: b\x01\n"), "s.yaml:1: control character 1"));
  EXPECT_TRUE(contains(error_of("a: 1\nb: \xff\xfe\n"), "s.yaml:2: not UTF-8"));
  EXPECT_TRUE(contains(error_of("{\"a\": 1,}", "s.json"), "s.json:1: not JSON"));
  EXPECT_TRUE(contains(error_of("{\"a\": 1} x", "s.json"), "not JSON"));
  EXPECT_TRUE(contains(error_of("{\"a\":\n\n 01}", "s.json"), "s.json:3: not JSON"));
  EXPECT_EQ(parse_settings("", "s.yaml").entries.size(), 0u);
  EXPECT_EQ(parse_settings(" \n", "s.json").entries.size(), 0u);
  EXPECT_EQ(parse_settings("# nothing\n", "s.yaml").entries.size(), 0u);
}

TEST(SettingTree, BoundsDepthNodesAndSize) {
  EXPECT_TRUE(contains(error_of("a: " + repeat("[", 100000)), "nested deeper than 32"));
  EXPECT_TRUE(contains(error_of("a: " + repeat("{b: ", 5000)), "nested deeper than 32"));
  EXPECT_TRUE(contains(error_of("a:\n" + repeat("- ", 5000) + "x\n"), "nested deeper than 32"));
  EXPECT_TRUE(contains(error_of("{\"a\": " + repeat("[", 100000), "s.json"), "nested deeper than 32"));
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += cat("a", i, ": &a", i, " [");
    for (int j = 0; j < 9; ++j) bomb += cat(j ? ", " : "", "*a", i - 1);
    bomb += "]\n";
  }
  EXPECT_TRUE(contains(error_of(bomb), "more than 200000 values"));
  EXPECT_TRUE(contains(error_of("a: " + std::string(5 << 20, 'x')), "a settings file has at most"));
  EXPECT_TRUE(contains(error_of("a: [" + repeat("1,", 250000) + "1]"), "more than 200000 values"));
}

TEST(SettingTree, DuplicateKeysInAHugeMapAreFast) {
  std::string text;
  for (int i = 0; i < 40000; ++i) text += cat("k", i, ": 1\n");
  EXPECT_EQ(parse_settings(text, "s.yaml").entries.size(), 40000u);
  EXPECT_TRUE(contains(error_of(text + "k7: 2\n"), "duplicate key k7"));
}

// Whatever the bytes, the outcome is a Config or an Error(kUsage).
TEST(SettingTree, RandomTextsNeverDoAnythingElse) {
  const std::string seed_text =
      "base: &b {lr: 1e-4}\ntrain:\n  batch_size: 32\n  optimizer: {type: AdamW, params: {<<: *b, betas: [0.9, 0.999]}}\n"
      "  distributed: {data_parallel_size: 2}\ndataset: {labels: [\"a\", 'b', no, ~]}\n";
  const std::vector<std::string> pieces = {"<<: ", "*b",      "&b ", "[",           "]",        "{",    "}",          ": ", "\n",    "  ",
                                           "- ",   "? ",      "| ",  "> ",          "\"",       "'",    "!!",         "#",  "---\n", "~",
                                           ",",    "\\u0041", "\t",  "%YAML 1.2\n", "\xc3\xa9", "\xff", "batch_size", "010"};
  std::mt19937 random(7);
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  size_t rounds = 0, loaded = 0;
  while (std::chrono::steady_clock::now() < until || rounds < 100) {
    std::string text = random() % 4 == 0 ? "" : seed_text;
    for (size_t i = random() % 12; i > 0; --i) {
      size_t at = text.empty() ? 0 : random() % text.size();
      switch (random() % 4) {
        case 0: text.insert(at, pieces[random() % pieces.size()]); break;
        case 1:
          if (!text.empty()) text.erase(at, random() % 8);
          break;
        case 2: text.insert(at, 1, static_cast<char>(random() % 256)); break;
        case 3:
          if (!text.empty()) text[at] = static_cast<char>(random() % 128);
          break;
      }
    }
    testing::Loaded outcome = testing::load_text(text, random() % 3 == 0 ? "s.json" : "s.yaml");
    if (outcome.error.empty()) ++loaded;
    else EXPECT_EQ(outcome.code, 2) << outcome.error;
    ++rounds;
  }
  EXPECT_GT(loaded, 0u);
  EXPECT_LT(loaded, rounds);
}

}  // namespace plait
