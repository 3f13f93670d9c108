#include "plait/rendezvous/hello.h"

#include <gtest/gtest.h>

#include "plait/base/text.h"
#include "plait/rendezvous/frame.h"

namespace plait::rendezvous {
namespace {

TEST(Hello, ReadsBack) {
  Hello hello = Hello::of_this_process(3, 8);
  hello.job_id = "job 7";
  hello.settings = "train.seed: 1\n";
  hello.has_secret = true;
  Hello back = decode_hello(encode(hello));
  EXPECT_EQ(encode(back), encode(hello));
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.world_size, 8);
  EXPECT_EQ(back.version, plait_version());
  EXPECT_EQ(name_of(back), cat("rank 3 (host ", hello.host, ", pid ", hello.pid, ")"));
  for (size_t length = 0; length < encode(hello).size(); ++length) EXPECT_THROW(decode_hello(encode(hello).substr(0, length)), BadFrame);
}

TEST(Hello, NamesAreShownWithoutControlCharacters) {
  Hello hello = Hello::of_this_process(0, 1);
  hello.host = "evil\x1b[2J\n" + std::string(500, 'h');
  EXPECT_EQ(decode_hello(encode(hello)).host.substr(0, 9), "evil?[2J?");
  EXPECT_EQ(decode_hello(encode(hello)).host.size(), 200u);
}

TEST(Hello, ProofsDependOnEverything) {
  std::string right = proof("secret", Prover::kClient, "server", "client", "hello");
  EXPECT_EQ(right, proof("secret", Prover::kClient, "server", "client", "hello"));
  EXPECT_NE(right, proof("secret2", Prover::kClient, "server", "client", "hello"));
  EXPECT_NE(right, proof("secret", Prover::kServer, "server", "client", "hello"));
  EXPECT_NE(right, proof("secret", Prover::kClient, "serverc", "lient", "hello"));
  EXPECT_NE(right, proof("secret", Prover::kClient, "server", "client", "hullo"));
}

constexpr const char* kText =
    "task: text-generation\nmodel:\n  path: /a/model\n  init: random\ndataset:\n  train:\n    file: /a/rows\n    rows: 7\n  valid:\n"
    "    file: /b\ntrain:\n  work_dir: /runs\n  batch_size: 32\n  tensorboard:\n    dir: /tb\n  seed: 0\n";

TEST(Settings, PathsAreNotCompared) {
  EXPECT_EQ(comparable_settings(kText),
            "task: text-generation\nmodel.init: random\ndataset.train.rows: 7\ntrain.batch_size: 32\ntrain.seed: 0\n");
}

TEST(Settings, TheFirstDifferenceIsNamed) {
  std::string one = comparable_settings(kText), two = one;
  EXPECT_FALSE(first_difference(one, two));
  two.replace(two.find("32"), 2, "64");
  two.replace(two.find("seed: 0"), 7, "seed: 1");
  auto difference = first_difference(one, two);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->name, "train.batch_size");
  EXPECT_EQ(difference->first, "32");
  EXPECT_EQ(difference->second, "64");
  difference = first_difference(one + "train.extra: 1\n", one);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->name, "train.extra");
  EXPECT_EQ(difference->second, "(not set)");
  difference = first_difference(one, one + "train.extra: 1\n");
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->first, "(not set)");
}

TEST(Settings, ContentsAreComparedWithoutTheirPaths) {
  const std::string text = "seed: 0\n", here = contents_line("dataset.train.file", "1a", "/a/rows 1:");
  const std::string one = comparable_settings(text + here);
  EXPECT_FALSE(first_difference(one, comparable_settings(text + contents_line("dataset.train.file", "1a", "/b"))));
  auto difference = first_difference(one, comparable_settings(text + contents_line("dataset.train.file", "2b", "/b")));
  ASSERT_TRUE(difference && difference->of_contents);
  EXPECT_EQ(difference->name, "dataset.train.file");
  EXPECT_EQ(difference->first, "/a/rows 1:");
  EXPECT_EQ(difference->second, "/b");
  difference = first_difference(one, comparable_settings(text));
  ASSERT_TRUE(difference && difference->of_contents);
  EXPECT_EQ(difference->second, "not given");
  std::string huge;
  for (int i = 0; i < 20000; ++i) huge += cat("key", i, ": a value of some length\n");
  EXPECT_TRUE(
      first_difference(comparable_settings(huge + here), comparable_settings(huge + contents_line("dataset.train.file", "2b", "/b")))
          ->of_contents);
  EXPECT_TRUE(comparable_settings("contents of x:").size() < 20);
}

TEST(Settings, LongValuesAreComparedByHashAndShownWhereTheyDiffer) {
  std::string labels = "labels: [";
  for (int i = 0; i < 5000; ++i) labels += cat("label", i, ", ");
  std::string other = labels;
  other[other.size() - 3] = 'x';
  EXPECT_LT(comparable_settings(labels).size(), 400u);
  EXPECT_EQ(first_difference(comparable_settings(labels), comparable_settings(other))->name, "labels");
  auto medium = first_difference("labels: " + std::string(300, 'a') + "1\n", "labels: " + std::string(300, 'a') + "2\n");
  EXPECT_EQ(medium->first, "..." + std::string(20, 'a') + "1");
  std::string huge;
  for (int i = 0; i < 20000; ++i) huge += cat("key", i, ": a value of some length\n");
  EXPECT_LT(comparable_settings(huge).size(), 200u);
}

}  // namespace
}  // namespace plait::rendezvous
