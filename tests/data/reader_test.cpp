#include "plait/data/row_reader.h"

#include <memory>

#include "plait/data/text_lines.h"
#include "tests/data/data_fixture.h"

namespace plait {
namespace {

class ReaderTest : public DataTest {
 protected:
  // "text|label" of every row.
  std::vector<std::string> rows(const std::string& name, const std::string& content, Task task = Task::kTextClassification) {
    ReadOptions options;
    options.task = task;
    options.setting = "dataset.train.file";
    auto reader = open_rows(write(name, content), options);
    std::vector<std::string> result;
    for (FileRow row; reader->next(row);) result.push_back(cat(row.line, ":", row.text, "|", row.label));
    EXPECT_EQ(reader->bytes_read(), static_cast<int64_t>(content.size()));
    return result;
  }
  std::string refused(const std::string& name, const std::string& content, Task task = Task::kTextClassification) {
    return refusal([&] { rows(name, content, task); });
  }
};
using Rows = std::vector<std::string>;

TEST_F(ReaderTest, CsvAsRfc4180) {
  EXPECT_EQ(rows("a.csv", "text,label\nplain,1\n\"with, comma\",2\n\"say \"\"hi\"\"\",3\n"),
            (Rows{"2:plain|1", "3:with, comma|2", "4:say \"hi\"|3"}));
  EXPECT_EQ(rows("a.csv", "label,text,more\n1,\"two\nlines\",x\n2,next,y\n"), (Rows{"2:two\nlines|1", "4:next|2"}));
  EXPECT_EQ(rows("a.csv", "\xef\xbb\xbftext,label\r\na,1\r\n\"b\",\"2\"\r\n"), (Rows{"2:a|1", "3:b|2"}));  // BOM, CRLF
  EXPECT_EQ(rows("a.csv", "text,label\n\"a\r\nb\",1\n"), (Rows{"2:a\r\nb|1"}));                            // CRLF inside quotes stays
  EXPECT_EQ(rows("a.csv", "text,label\na,1"), (Rows{"2:a|1"}));                                            // no last line end
  EXPECT_EQ(rows("a.csv", "text,label\n\n\na,1\n\n"), (Rows{"4:a|1"}));                                    // empty lines
  EXPECT_EQ(rows("a.csv", "\"text\",\"label\"\n\"\"\"\",1\n"), (Rows{"2:\"|1"}));
  EXPECT_EQ(rows("a.csv", "text,label\na \"b\" c,1\n"), (Rows{"2:a \"b\" c|1"}));                   // quote inside a bare field
  EXPECT_EQ(rows("A.CSV", "text,label\n\"" + std::string(3 << 20, 'x') + "\ny\",1\n").size(), 1u);  // longer than a read
}

TEST_F(ReaderTest, TsvHasNoQuotes) {
  EXPECT_EQ(rows("a.tsv", "text\tlabel\n\"open quote\t0\nit's \"fine\"\t1\r\n"), (Rows{"2:\"open quote|0", "3:it's \"fine\"|1"}));
}

TEST_F(ReaderTest, Jsonl) {
  EXPECT_EQ(rows("a.jsonl", "{\"text\": \"a\\u00e9\\n\", \"label\": \"x\"}\n\n{\"label\": 3, \"text\": \"b\", \"z\": null}\r\n"),
            (Rows{"1:a\xc3\xa9\n|x", "3:b|3"}));
}

TEST_F(ReaderTest, TextLinesAreDocuments) {
  EXPECT_EQ(rows("a.txt", "one\r\n\n  \ntwo", Task::kTextGeneration), (Rows{"1:one|", "4:two|"}));
}

TEST_F(ReaderTest, RefusedRowsNameFileLineAndRule) {
  struct Case {
    std::string name, content;
    std::vector<std::string> words;  // in the message
  };
  const std::vector<Case> cases = {
      {"a.csv", "", {"a.csv is empty"}},
      {"a.csv", "\n\n", {"a.csv:1", "no header"}},
      {"a.csv", "txt,label\na,1\n", {"a.csv:1", "no column \"text\"", "txt, label", "Did you mean \"txt\""}},
      {"a.csv", "text,lab\na,1\n", {"a.csv:1", "no column \"label\"", "text, lab"}},
      {"a.csv", "text,label,text\na,1,b\n", {"a.csv:1", "twice"}},
      {"a.csv", "text,label\na,1\n,2\n", {"a.csv:3", "row without text"}},
      {"a.csv", "text,label\n  ,2\n", {"a.csv:2", "row without text", "blank"}},
      {"a.csv", "text,label\na,\n", {"a.csv:2", "\"label\" is empty"}},
      {"a.csv", "text,label\na,1,2\n", {"a.csv:2", "3 fields", "2 columns"}},
      {"a.csv", "text,label\na\n", {"a.csv:2", "1 fields"}},
      {"a.csv", "text,label\nx,0\n\"never closed,1\nb,2\n", {"a.csv:3", "never closed"}},
      {"a.csv", "text,label\n\"a\"b,1\n", {"a.csv:2", "'b' after a closing"}},
      {"a.tsv", "text\tlabel\na,1\n", {"a.tsv:2", "1 fields"}},
      {"a.csv", "text,label\nok,1\ncaf\xe9,2\n", {"a.csv:3", "byte 4 of the line (byte 19 of the file", "UTF-8"}},
      {"a.jsonl", "", {"a.jsonl is empty"}},
      {"a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \n", {"a.jsonl:2", "not valid JSON"}},
      {"a.jsonl", "[1, 2]\n", {"a.jsonl:1", "object", "array"}},
      {"a.jsonl", "{\"txt\": \"a\", \"label\": 1}\n", {"a.jsonl:1", "no column \"text\"", "label, txt"}},
      {"a.jsonl", "{\"text\": \"a\"}\n", {"a.jsonl:1", "no column \"label\""}},
      {"a.jsonl", "{\"text\": 5, \"label\": 1}\n", {"a.jsonl:1", "number, not a string"}},
      {"a.jsonl", "{\"text\": null, \"label\": 1}\n", {"a.jsonl:1", "row without text", "null"}},
      {"a.jsonl", "{\"text\": \"\", \"label\": 1}\n", {"a.jsonl:1", "row without text", "empty"}},
      {"a.jsonl", "{\"text\": \"a\", \"label\": 1.5}\n", {"a.jsonl:1", "string or an integer"}},
      {"a.jsonl", "{\"text\": \"a\", \"label\": true}\n", {"a.jsonl:1", "boolean"}},
      {"a.jsonl", "{\"text\": \"\\ud800\", \"label\": 1}\n", {"a.jsonl:1", "not valid JSON"}},
      {"a.jsonl", "{\"text\": \"\xff\", \"label\": 1}\n", {"a.jsonl:1", "byte 11 of the line", "UTF-8"}},
      {"a.jsonl", "{\"input_ids\": 3, \"labels\": 1}\n", {"a.jsonl:1", "not a list of integers"}},
      {"a.jsonl", "{\"input_ids\": [], \"labels\": 1}\n", {"a.jsonl:1", "at least one token"}},
      {"a.jsonl", "{\"input_ids\": [1, \"2\"], \"labels\": 1}\n", {"a.jsonl:1", "\"input_ids\"[1]", "not an integer"}},
      {"a.jsonl", "{\"input_ids\": [1, 2.5], \"labels\": 1}\n", {"a.jsonl:1", "2.5", "not an integer"}},
      {"a.jsonl", "{\"input_ids\": [99999999999], \"labels\": 1}\n", {"a.jsonl:1", "32 bits"}},
      {"a.jsonl", "{\"input_ids\": [1, 2], \"attention_mask\": [1], \"labels\": 1}\n", {"a.jsonl:1", "has 1 entries", "has 2"}},
      {"a.jsonl", "{\"input_ids\": [1, 2], \"attention_mask\": [1, 2], \"labels\": 1}\n", {"a.jsonl:1", "neither 0 nor 1"}},
      {"a.jsonl", "{\"input_ids\": [1, 2], \"attention_mask\": [0, 0], \"labels\": 1}\n", {"a.jsonl:1", "0 everywhere"}},
      {"a.jsonl", "{\"input_ids\": [1, 2]}\n", {"a.jsonl:1", "no column \"labels\""}},
      {"a.jsonl", "{\"input_ids\": [1], \"labels\": 1}\n{\"text\": \"a\", \"label\": 1}\n", {"a.jsonl:2", "either text or tokens"}},
      {"a.txt", "one\n", {"a.txt:1", "no column \"label\""}},
  };
  for (const auto& test : cases) {
    std::string message = refused(test.name, test.content);
    EXPECT_EQ(message.substr(0, 2), "3 ") << test.content << "\n" << message;
    for (const auto& word : test.words)
      EXPECT_NE(message.find(word), std::string::npos) << test.content << "\n" << message << "\nlacks " << word;
  }
}

TEST_F(ReaderTest, DeepJsonAndLongLinesEndCleanly) {
  std::string deep = "{\"text\": \"a\", \"label\": 1, \"x\": " + std::string(200000, '[') + std::string(200000, ']') + "}\n";
  EXPECT_EQ(rows("a.jsonl", deep), (Rows{"1:a|1"}));
  std::string message = refused("a.jsonl", std::string(kMaxLineBytes + 1, 'x'));
  EXPECT_NE(message.find("a.jsonl:1: the line is longer"), std::string::npos) << message;
}

TEST_F(ReaderTest, FilesThatCannotBeRead) {
  auto open = [&](const std::string& path) {
    ReadOptions options;
    options.setting = "dataset.train.file";
    return refusal([&] { open_rows(path, options); });
  };
  EXPECT_EQ(open(folder_ / "none.csv").substr(0, 20), "2 dataset.train.file");
  EXPECT_NE(open(folder_ / "none.csv").find("No such file"), std::string::npos);
  std::filesystem::create_directory(folder_ / "folder.csv");
  EXPECT_EQ(open(folder_ / "folder.csv").substr(0, 2), "2 ");
  EXPECT_NE(open("data.json").find(".jsonl"), std::string::npos);
  EXPECT_EQ(open("data.parquet").substr(0, 2), "2 ");
  EXPECT_EQ(open("folder.csv/data").substr(0, 2), "2 ");
}

// Property: any field contents written by the rule of RFC 4180 come back.
TEST_F(ReaderTest, CsvRoundTrip) {
  const std::string alphabet[] = {"a", ",", "\"", "\n", "\r\n", " ", "\xc3\xa9", "\"\""};
  uint64_t state = 1;
  auto random = [&](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
  };
  std::string content = "label,text\n";
  std::vector<std::string> texts;
  for (int r = 0; r < 300; ++r) {
    std::string text = "x";
    for (uint64_t k = random(12); k > 0; --k) text += alphabet[random(8)];
    std::string quoted = "\"";
    for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    content += cat(r, ",", quoted, "\"", r % 2 ? "\r\n" : "\n");
    texts.push_back(text);
  }
  auto read = rows("a.csv", content);
  ASSERT_EQ(read.size(), texts.size());
  for (size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(read[r].substr(read[r].find(':') + 1), cat(texts[r], "|", r));
}

TEST_F(ReaderTest, WholeText) {
  EXPECT_EQ(read_whole_text(write("a.txt",
                                  "\xef\xbb\xbf"
                                  "a\r\nb\rc\n\nd\r"),
                            "f"),
            "a\nb\rc\n\nd\r");
  EXPECT_EQ(read_whole_text(write("a.txt", "a\n\n"), "f"), "a\n\n");
  EXPECT_EQ(read_whole_text(write("a.txt", "\n"), "f"), "\n");
}

}  // namespace
}  // namespace plait
