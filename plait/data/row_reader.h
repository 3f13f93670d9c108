// RowReader: the rows of a .jsonl, .tsv, .csv or .txt file as they stand there, one after the other, checked for form but not for
// vocabulary. docs/data.md describes the forms. Every fault of a row is Error(kData) that begins with file:line. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plait/config/config.h"

namespace plait {

enum class FileForm { kJsonl, kTsv, kCsv, kText };

// By the extension, in any case. Throws Error(kUsage) naming `setting`, the file and the known extensions.
FileForm file_form(const std::string& path, const std::string& setting);

struct FileRow {
  int64_t line = 0;                                               // where the row begins, from 1
  std::string text;                                               // never blank, unless the row is pre-tokenised
  std::string text_pair;                                          // the second text, never blank where one is asked for
  std::string label;                                              // classification, as written; integers of JSON in decimal
  bool pretokenised = false;                                      // the four below
  std::vector<int32_t> ids, attention_mask, token_types, labels;  // absent columns are empty; labels: causal LM only
};

struct ReadOptions {
  std::string text_col = "text", text_pair_col, label_col = "label";  // text_pair_col "" = rows of one text
  Task task = Task::kTextClassification;
  bool read_labels = true;  // classification: a label is required in every row
  std::string setting;      // named in messages, "dataset.train.file"
};

class RowReader {
 public:
  virtual ~RowReader() = default;
  // False at the end of the file.
  virtual bool next(FileRow& row) = 0;
  virtual int64_t bytes_read() const = 0;
  virtual int64_t file_bytes() const = 0;
};

// Opens the file (Error(kUsage) when that fails, Error(kData) when it is empty or its header lacks a column).
// A .txt file gives one row for each line that is not blank.
std::unique_ptr<RowReader> open_rows(const std::string& path, const ReadOptions& options);

namespace detail {
std::unique_ptr<RowReader> open_jsonl(const std::string& path, const ReadOptions& options);
std::unique_ptr<RowReader> open_delimited(const std::string& path, const ReadOptions& options, FileForm form);
}  // namespace detail

}  // namespace plait
