// Rows of two texts (text_pair_col): from file to ids and token types, what is refused, and the cache.
#include "plait/data/dataset.h"
#include "tests/data/data_fixture.h"

namespace plait {
namespace {

constexpr Task kCls = Task::kTextClassification;
using Ids = std::vector<int32_t>;
using TextPairsTest = DataTest;

TEST_F(TextPairsTest, RowsOfTwoTexts) {
  file_.text_pair_col = "second";
  for (std::string path : {write("a.csv", "second,text,label\nde,abc,dog\nof sixteen,longer than that,cat\n"),
                           write("a.tsv", "text\tlabel\tsecond\nabc\tdog\tde\nlonger than that\tcat\tof sixteen\n"),
                           write("a.jsonl",
                                 "{\"text\": \"abc\", \"second\": \"de\", \"label\": \"dog\"}\n"
                                 "{\"text\": \"longer than that\", \"second\": \"of sixteen\", \"label\": \"cat\"}\n")}) {
    labels_ = {};
    Dataset data = load(path, kCls);
    ASSERT_EQ(data.size(), 2) << path;
    TokenRow row = data.row(0);
    EXPECT_EQ(ids(row), (Ids{256, 'a', 'b', 'c', 257, 'd', 'e', 257})) << path;
    EXPECT_EQ(Ids(row.token_types.begin(), row.token_types.end()), (Ids{0, 0, 0, 0, 0, 1, 1, 1})) << path;
    EXPECT_EQ(row.label_class, 1);
    EXPECT_EQ(data.row(1).ids.size(), 16u);
    EXPECT_EQ(data.row(1).token_types.size(), 16u);
    EXPECT_EQ(data.num_cut_rows(), 1);
    EXPECT_EQ(data.longest_row(), 16);
  }
}

TEST_F(TextPairsTest, Refusals) {
  auto refused = [&](const std::string& name, const std::string& content, LabelUse use = LabelUse::kTraining) {
    options_.label_use = use;
    labels_ = {};
    std::string path = write(name, content);
    return refusal([&] { load(path, kCls); });
  };
  auto expect = [](const std::string& message, const std::string& piece) {
    EXPECT_NE(message.find(piece), std::string::npos) << message << "\n  without: " << piece;
  };
  file_.text_pair_col = "second";
  expect(refused("a.csv", "text,label\na,1\n"), "a.csv:1: no column \"second\"; the columns here are: text, label");
  expect(refused("a.csv", "text,second,label\na,,1\n"), "a.csv:2: row without text: column \"second\" is empty");
  expect(refused("a.tsv", "text\tsecond\tlabel\na\t \t1\n"), "column \"second\" is blank");
  expect(refused("a.jsonl", "{\"text\":\"a\",\"second\":7,\"label\":1}\n"),
         "a.jsonl:1: row without text: \"second\" is number, not a string");
  expect(refused("a.jsonl", "{\"input_ids\":[1,2],\"labels\":1}\n"), "text_pair_col: second cannot be honoured, the rows are tokens");
  expect(refused("a.txt", "a\n", LabelUse::kIgnored), "a .txt file has no column \"second\"; pairs of texts need");
  shape_.type_vocab_size = 1;
  expect(refused("a.csv", "text,second,label\na,b,1\n"),
         "4 the tokenizer gives token type 1 to pairs of texts, but the model's type_vocab_size is 1");
}

TEST_F(TextPairsTest, TheColumnsAreInTheKeyAndPairsComeBack) {
  options_.cache_dir = (folder_ / "work" / "cache").string();
  options_.tokenizer_path = (folder_ / "tokenizer.json").string();
  std::string path = write("a.csv", "text,second,thirds,label\nab,cd,ef,1\nab,gh,ij,0\n");
  auto made_anew = [&] { return !load(path, kCls).from_cache(); };
  EXPECT_TRUE(made_anew());
  file_.text_pair_col = "second";
  EXPECT_TRUE(made_anew());
  file_.text_pair_col = "thirds";
  EXPECT_TRUE(made_anew());
  Dataset read = load(path, kCls);
  ASSERT_TRUE(read.from_cache());
  EXPECT_EQ(ids(read.row(1)), (Ids{256, 'a', 'b', 257, 'i', 'j', 257}));
  TokenRow row = read.row(1);
  EXPECT_EQ(Ids(row.token_types.begin(), row.token_types.end()), (Ids{0, 0, 0, 0, 1, 1, 1}));
  file_.text_pair_col = "";
  EXPECT_FALSE(made_anew());
}

}  // namespace
}  // namespace plait
