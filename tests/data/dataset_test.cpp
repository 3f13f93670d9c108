#include "plait/data/dataset.h"

#include <atomic>
#include <thread>

#include "plait/data/row_block.h"
#include "tests/data/data_fixture.h"

namespace plait {
namespace {

constexpr Task kCls = Task::kTextClassification, kLm = Task::kTextGeneration;
using Ids = std::vector<int32_t>;

class DatasetTest : public DataTest {
 protected:
  std::vector<std::string> texts(const Dataset& dataset) {
    std::vector<std::string> result;
    for (int64_t r = 0; r < dataset.size(); ++r) result.push_back(text_of(dataset.row(r)));
    return result;
  }
  std::vector<std::string> files(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
    return names;
  }
  std::string cache_file() {
    for (const auto& name : files(options_.cache_dir)) {
      if (name.ends_with(".bin")) return options_.cache_dir + "/" + name;
    }
    return "";
  }
};
using Texts = std::vector<std::string>;

TEST_F(DatasetTest, ClassificationRows) {
  Dataset data = load(write("a.csv", "text,label\nabc,dog\na text that is longer than sixteen,cat\nx,dog\n"), kCls);
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(labels_.names, (Texts{"cat", "dog"}));
  EXPECT_EQ(ids(data.row(0)), (Ids{256, 'a', 'b', 'c', 257}));
  EXPECT_EQ(data.row(0).label_class, 1);
  EXPECT_EQ(data.row(1).label_class, 0);
  EXPECT_EQ(data.row(1).ids.size(), 16u);
  EXPECT_EQ(data.row(2).row_id, 2);
  EXPECT_TRUE(data.row(0).attention_mask.empty() && data.row(0).token_types.empty() && data.row(0).labels.empty());
  EXPECT_EQ(data.num_cut_rows(), 1);
  EXPECT_EQ(data.num_tokens(), 5 + 16 + 3);
  EXPECT_EQ(data.longest_row(), 16);
  EXPECT_EQ(summary(data), "3 rows, 24 tokens, longest 16, 1 rows cut at sequence_length");
}

TEST_F(DatasetTest, FirstRowsOnlyAndWhatFollowsIsNotRead) {
  file_.rows = 2;
  Dataset data = load(write("a.jsonl", "{\"text\":\"a\",\"label\":0}\n{\"text\":\"b\",\"label\":1}\nnot json\n"), kCls);
  EXPECT_EQ(data.size(), 2);
  EXPECT_EQ(labels_.names, (Texts{"0", "1"}));
}

TEST_F(DatasetTest, LabelsOfTheTrainingFileApplyToOthers) {
  load(write("train.csv", "text,label\na,dog\nb,cat\n"), kCls);
  options_.label_use = LabelUse::kKnown;
  Dataset valid = load(write("valid.csv", "text,label\nc,dog\n"), kCls);
  EXPECT_EQ(valid.row(0).label_class, 1);
  std::string message = refusal([&] { load(write("bad.csv", "text,label\nc,dog\nd,dgo\n"), kCls); });
  EXPECT_EQ(message.substr(0, 2), "3 ");
  for (std::string word : {"bad.csv:3", "row 1", "\"dgo\"", "cat, dog", "Did you mean \"dog\""})
    EXPECT_NE(message.find(word), std::string::npos) << message;
}

TEST_F(DatasetTest, GivenLabels) {
  labels_ = given_labels({"dog", "cat"});
  EXPECT_EQ(load(write("a.csv", "text,label\na,cat\nb,0\n"), kCls).row(0).label_class, 1);
  EXPECT_EQ(refusal([&] { load(write("b.csv", "text,label\na,bird\n"), kCls); }).substr(0, 2), "3 ");
}

TEST_F(DatasetTest, PredictingNeedsNoLabels) {
  options_.label_use = LabelUse::kIgnored;
  Dataset data = load(write("a.csv", "text\na\nb\n"), kCls);
  EXPECT_EQ(data.size(), 2);
  EXPECT_FALSE(data.has_labels());
  EXPECT_EQ(data.row(1).label_class, -1);
  EXPECT_EQ(load(write("a.txt", "a\nb\n"), kCls).size(), 2);
}

TEST_F(DatasetTest, StreamOfAPlainTextIsTheWholeText) {
  // 40 characters; the pair of line ends is one token even though it lies between "lines".
  std::string text = "one line\n\nsecond paragraph\nthird\n\nx yz\n";
  preprocessor_.sequence_length = 5;
  Dataset data = load(write("a.txt", text), kLm);
  Ids whole = tokenizer_.encode(text, false), joined;
  for (int64_t r = 0; r < data.size(); ++r) {
    ASSERT_EQ(data.row_length(r), 5);
    for (int32_t id : data.row(r).ids) joined.push_back(id);
  }
  EXPECT_EQ(data.size(), static_cast<int64_t>(whole.size()) / 5);
  EXPECT_EQ(data.num_dropped_tokens(), static_cast<int64_t>(whole.size()) % 5);
  whole.resize(joined.size());
  EXPECT_EQ(joined, whole);
  file_.rows = 2;
  EXPECT_EQ(load(write("a.txt", text), kLm).size(), 2);
}

TEST_F(DatasetTest, StreamOfRowsJoinsThem) {
  preprocessor_.sequence_length = 4;
  preprocessor_.add_eos = true;
  Dataset data = load(write("a.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"de\"}\n{\"text\":\"f\"}\n"), kLm);
  ASSERT_EQ(data.size(), 2);  // abc$ de$f $
  EXPECT_EQ(ids(data.row(0)), (Ids{'a', 'b', 'c', 259}));
  EXPECT_EQ(ids(data.row(1)), (Ids{'d', 'e', 259, 'f'}));
  EXPECT_TRUE(data.row(1).document_starts.empty());
  EXPECT_EQ(data.num_dropped_tokens(), 1);
}

TEST_F(DatasetTest, DocumentsApart) {
  preprocessor_.sequence_length = 6;
  preprocessor_.document_attention = true;
  for (std::string name : {"a.jsonl", "a.txt"}) {
    Dataset data = load(
        write(name, name == "a.txt" ? "abc\nde\nfghijklm\n" : "{\"text\":\"abc\"}\n{\"text\":\"de\"}\n{\"text\":\"fghijklm\"}\n"), kLm);
    ASSERT_EQ(data.size(), 2);  // abcdef ghijkl (m)
    EXPECT_EQ(data.row(0).document_starts, (Ids{3, 5}));
    EXPECT_EQ(data.row(1).document_starts, Ids{});
    EXPECT_EQ(text_of(data.row(1)), "ghijkl");
  }
}

TEST_F(DatasetTest, DocumentBlocks) {
  preprocessor_.sequence_length = 4;
  preprocessor_.block = BlockMode::kDocument;
  EXPECT_EQ(texts(load(write("a.txt", "abcdefghi\n\nxy\r\nzzzz\n"), kLm)), (Texts{"abcd", "efgh", "i", "xy", "zzzz"}));
  preprocessor_.add_eos = true;
  Dataset data = load(write("a.txt", "abcd\nxy\n"), kLm);
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(ids(data.row(1)), (Ids{259}));
  EXPECT_EQ(ids(data.row(2)), (Ids{'x', 'y', 259}));
  file_.rows = 2;
  EXPECT_EQ(load(write("a.txt", "abcd\nxy\n"), kLm).size(), 2);
}

TEST_F(DatasetTest, TokenRows) {
  std::string path = write("a.jsonl",
                           "{\"input_ids\":[5,6,7],\"labels\":[5,-100,7]}\n"
                           "{\"input_ids\":[8,9],\"attention_mask\":[1,0],\"token_type_ids\":[0,1]}\n");
  Dataset data = load(path, kLm);
  ASSERT_EQ(data.size(), 2);
  auto list = [](std::span<const int32_t> column) { return Ids(column.begin(), column.end()); };
  EXPECT_EQ(list(data.row(0).labels), (Ids{5, -100, 7}));
  EXPECT_EQ(list(data.row(1).labels), (Ids{8, 9}));  // absent = input_ids
  EXPECT_EQ(list(data.row(0).attention_mask), (Ids{1, 1, 1}));
  EXPECT_EQ(list(data.row(1).attention_mask), (Ids{1, 0}));
  EXPECT_EQ(list(data.row(1).token_types), (Ids{0, 1}));
  Dataset cls = load(write("b.jsonl", "{\"input_ids\":[5,6],\"labels\":1}\n{\"input_ids\":[7],\"labels\":0}\n"), kCls);
  EXPECT_EQ(cls.row(0).label_class, 1);
  EXPECT_EQ(cls.row(1).label_class, 0);
}

TEST_F(DatasetTest, LabelsMayBeginInALaterRow) {
  Dataset data = load(write("a.jsonl", "{\"input_ids\":[5,6]}\n{\"input_ids\":[8,9],\"labels\":[-100,9]}\n"), kLm);
  auto row = data.row(0);
  EXPECT_EQ(Ids(row.labels.begin(), row.labels.end()), (Ids{5, 6}));
}

TEST_F(DatasetTest, RefusedInputs) {
  struct Case {
    std::string content;
    std::vector<std::string> words;
  };
  const std::vector<Case> lm_rows = {
      {"{\"input_ids\":[1]}\n{\"input_ids\":[1,260]}\n", {"3 ", ":2", "row 1", "input_ids[1] = 260", "vocab_size 260"}},
      {"{\"input_ids\":[-1]}\n", {"3 ", "input_ids[0] = -1"}},
      {"{\"input_ids\":[1,2],\"labels\":[1,-1]}\n", {"3 ", "labels[1] = -1", "-100"}},
      {"{\"input_ids\":[1,2],\"token_type_ids\":[0,2]}\n", {"3 ", "token_type_ids[1] = 2"}},
      {"{\"input_ids\":[1,2],\"labels\":[1]}\n", {"3 ", "\"labels\" has 1 entries"}},
      {"{\"input_ids\":[" + join(Ids(17, 1)) + "]}\n", {"3 ", "17 tokens", "sequence_length 16", "never cut"}},
      {"{\"text\":\"short\"}\n", {"3 ", "5 tokens", "at most 5", "block: document"}},
  };
  for (const auto& test : lm_rows) {
    std::string message = refusal([&] { load(write("a.jsonl", test.content), kLm); });
    for (const auto& word : test.words)
      EXPECT_NE(message.find(word), std::string::npos) << test.content << "\n" << message << "\nlacks " << word;
  }
  EXPECT_EQ(refusal([&] { load(write("a.txt", " \n\n"), kLm); }).substr(0, 2), "3 ");
  EXPECT_EQ(refusal([&] { load(write("a.csv", "text,label\n"), kCls); }).substr(0, 2), "3 ");
  EXPECT_EQ(refusal([&] { load(folder_ / "none.csv", kCls); }).substr(0, 2), "2 ");
  std::string path = write("ok.csv", "text,label\na,b\n");
  preprocessor_.sequence_length = 17;
  std::string message = refusal([&] { load(path, kCls); });
  EXPECT_EQ(message.substr(0, 2), "2 ");
  EXPECT_NE(message.find("at most 16"), std::string::npos) << message;
  preprocessor_.sequence_length = 0;
  preprocessor_.add_eos = true;
  EXPECT_EQ(refusal([&] { load(path, kCls); }).substr(0, 2), "2 ");
  EXPECT_EQ(refusal([&] { load(write("t.jsonl", "{\"input_ids\":[1]}\n"), kLm); }).substr(0, 2), "3 ");
  shape_.eos_token_id.reset();
  EXPECT_EQ(refusal([&] { load(write("a.txt", "abc"), kLm); }).substr(0, 2), "2 ");
  preprocessor_.add_eos = false;
  shape_.vocab_size = 99;
  message = refusal([&] { load(path, kCls); });
  EXPECT_EQ(message.substr(0, 2), "4 ") << message;
  file_.file = path;
  EXPECT_EQ(refusal([&] { load_dataset(file_, kCls, preprocessor_, nullptr, shape_, &labels_, options_); }).substr(0, 2), "4 ");
}

TEST_F(DatasetTest, ManyThreadsGiveTheRowsOfOne) {
  std::string content = "text,label\n";
  for (int r = 0; r < 20000; ++r) content += cat("row ", r * 7919 % 20011, ",", r % 3, "\n");
  std::string path = write("a.csv", content);
  options_.num_threads = 1;
  Dataset one = load(path, kCls);
  options_.num_threads = 7;
  int64_t calls = 0;
  LoadProgress last;
  options_.progress = [&](const LoadProgress& progress) {
    ++calls;
    EXPECT_GE(progress.rows_done, last.rows_done);
    last = progress;
  };
  Dataset many = load(path, kCls);
  ASSERT_EQ(many.size(), 20000);
  for (int64_t r = 0; r < one.size(); ++r) ASSERT_EQ(ids(one.row(r)), ids(many.row(r)));
  EXPECT_GE(calls, 1);
  EXPECT_EQ(last.rows_done, 20000);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(last.bytes_total, static_cast<int64_t>(content.size()));
}

class CacheTest : public DatasetTest {
 protected:
  void SetUp() override {
    DatasetTest::SetUp();
    options_.cache_dir = (folder_ / "work" / "cache").string();
    options_.tokenizer_path = (folder_ / "tokenizer.json").string();
  }
};

TEST_F(CacheTest, SecondLoadReadsTheSameRows) {
  std::string path =
      write("a.jsonl", "{\"text\":\"abc\",\"label\":\"x\"}\n{\"text\":\"a text that is longer than sixteen\",\"label\":\"w\"}\n");
  Dataset made = load(path, kCls);
  LabelMap labels = labels_;
  labels_ = {};
  Dataset read = load(path, kCls);
  EXPECT_FALSE(made.from_cache());
  EXPECT_TRUE(read.from_cache());
  EXPECT_EQ(labels_.names, labels.names);
  ASSERT_EQ(read.size(), made.size());
  for (int64_t r = 0; r < made.size(); ++r) {
    EXPECT_EQ(ids(made.row(r)), ids(read.row(r)));
    EXPECT_EQ(made.row(r).label_class, read.row(r).label_class);
  }
  EXPECT_EQ(read.num_cut_rows(), 1);
  EXPECT_EQ(read.longest_row(), 16);
  // Unknown labels are still found, with their place.
  labels_ = given_labels({"x"});
  EXPECT_NE(refusal([&] { load(path, kCls); }).find("a.jsonl:2: row 1: unknown label \"w\""), std::string::npos);
}

TEST_F(CacheTest, TheDigestIsThatOfTheRows) {
  auto digest = [&](const std::string& name, const std::string& text) {
    labels_ = given_labels({"x", "w"});
    return load(write(name, text), kCls).digest();
  };
  const std::string one = "{\"text\":\"abc\",\"label\":\"x\"}\n", two = "{\"text\":\"ab\",\"label\":\"x\"}\n";
  const std::string made = digest("a.jsonl", one + two);
  EXPECT_EQ(digest("a.jsonl", one + two), made);  // from the cache
  EXPECT_EQ(digest("b.jsonl", one + "\n" + two), made);
  for (const std::string& other :
       {two + one, one, one + "{\"text\":\"ab\",\"label\":\"w\"}\n", one + "{\"text\":\"ac\",\"label\":\"x\"}\n"})
    EXPECT_NE(digest("c.jsonl", other), made) << other;
  options_.cache_dir = "";
  EXPECT_EQ(digest("a.jsonl", one + two), made);  // in memory
}

TEST_F(CacheTest, EverythingTheRowsDependOnIsInTheKey) {
  std::string text = "a stream of some text, long enough for windows\n", path = write("a.txt", text);
  auto made_anew = [&] { return !load(path, kLm).from_cache(); };
  EXPECT_TRUE(made_anew());
  EXPECT_FALSE(made_anew());
  preprocessor_.sequence_length = 8;
  EXPECT_TRUE(made_anew());
  preprocessor_.add_eos = true;
  EXPECT_TRUE(made_anew());
  preprocessor_.block = BlockMode::kDocument;
  EXPECT_TRUE(made_anew());
  file_.rows = 1;
  EXPECT_TRUE(made_anew());
  EXPECT_FALSE(made_anew());
  write("tokenizer.json", "{ }");
  EXPECT_TRUE(made_anew());
  write("a.txt", "A" + text.substr(1));  // same size
  EXPECT_TRUE(made_anew());
  EXPECT_FALSE(made_anew());
}

TEST_F(CacheTest, TokenRowsAndDocumentsComeBack) {
  preprocessor_.document_attention = true;
  preprocessor_.sequence_length = 6;
  std::string path = write("a.txt", "abc\nde\nfghijklm\n");
  load(path, kLm);
  Dataset read = load(path, kLm);
  ASSERT_TRUE(read.from_cache());
  EXPECT_EQ(read.row(0).document_starts, (Ids{3, 5}));
  preprocessor_.document_attention = false;
  path = write("b.jsonl", "{\"input_ids\":[5,6,7],\"labels\":[5,-100,7],\"attention_mask\":[1,1,0]}\n");
  load(path, kLm);
  read = load(path, kLm);
  ASSERT_TRUE(read.from_cache());
  TokenRow row = read.row(0);
  EXPECT_EQ(Ids(row.labels.begin(), row.labels.end()), (Ids{5, -100, 7}));
  EXPECT_EQ(Ids(row.attention_mask.begin(), row.attention_mask.end()), (Ids{1, 1, 0}));
}

TEST_F(CacheTest, DamagedFilesAreMadeAgain) {
  std::string path = write("a.csv", "text,label\nabc,1\nde,0\n");
  Dataset first = load(path, kCls);
  std::string file = cache_file();
  ASSERT_FALSE(file.empty());
  std::ifstream in(file, std::ios::binary);
  std::string good((std::istreambuf_iterator<char>(in)), {});
  std::vector<std::string> damaged = {"", good.substr(0, 10), good.substr(0, good.size() - 1), good + "x"};
  for (size_t at = 0; at < good.size(); at += 37) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    damaged.push_back(bytes);
  }
  int64_t rebuilt = 0;
  for (const auto& bytes : damaged) {
    std::filesystem::remove(file);  // earlier data sets still map the old file
    std::ofstream(file, std::ios::binary) << bytes;
    Dataset data = load(path, kCls);
    ASSERT_EQ(data.size(), 2);
    ASSERT_EQ(ids(data.row(0)), ids(first.row(0)));
    ASSERT_EQ(data.row(0).label_class, 1);
    rebuilt += !data.from_cache();
    ASSERT_TRUE(load(path, kCls).from_cache());
  }
  // Only padding of the header, which nothing reads, may be hit without a rebuild.
  EXPECT_GE(rebuilt, static_cast<int64_t>(damaged.size()) - 1);
  EXPECT_EQ(files(options_.cache_dir).size(), 2u);  // the cache and its lock: no temporaries left
}

TEST_F(CacheTest, ManyAtOnceMakeItOnce) {
  std::string content = "text,label\n";
  for (int r = 0; r < 3000; ++r) content += cat("row ", r, ",", r % 3, "\n");
  std::string path = write("a.csv", content);
  file_.file = path;
  std::atomic<int> made{0}, right{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        LabelMap labels;
        Dataset data = load_dataset(file_, kCls, preprocessor_, &tokenizer_, shape_, &labels, options_);
        made += !data.from_cache();
        right += data.size() == 3000 && text_of(data.row(2999)) == "row 2999" && labels.size() == 3;
      });
    }
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(right, 8);
}

TEST_F(CacheTest, FaultsLeaveNoCache) {
  std::string path = write("a.csv", "text,label\nabc,1\n,0\n");
  EXPECT_EQ(refusal([&] { load(path, kCls); }).substr(0, 2), "3 ");
  EXPECT_EQ(cache_file(), "");
  EXPECT_EQ(refusal([&] { load(path, kCls); }).substr(0, 2), "3 ");
  options_.cache_dir = (folder_ / "tokenizer.json" / "cache").string();
  EXPECT_EQ(refusal([&] { load(path, kCls); }).substr(0, 2), "2 ");
}

}  // namespace
}  // namespace plait
