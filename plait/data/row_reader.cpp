#include "plait/data/row_reader.h"

#include <algorithm>
#include <cctype>

#include "plait/base/error.h"
#include "plait/data/text_lines.h"

namespace plait {

namespace {

class PlainTextReader : public RowReader {
 public:
  PlainTextReader(const std::string& path, const ReadOptions& options) : lines_(path, options.setting) {}

  bool next(FileRow& row) override {
    std::string_view line;
    while (lines_.next(line)) {
      line = without_carriage_return(line);
      if (is_blank(line)) continue;
      row = FileRow{};
      row.line = lines_.line_number();
      row.text = line;
      return true;
    }
    return false;
  }
  int64_t bytes_read() const override { return lines_.bytes_read(); }
  int64_t file_bytes() const override { return lines_.file_bytes(); }

 private:
  TextLines lines_;
};

}  // namespace

FileForm file_form(const std::string& path, const std::string& setting) {
  size_t slash = path.rfind('/'), dot = path.rfind('.');
  std::string extension = dot == std::string::npos || (slash != std::string::npos && dot < slash) ? "" : path.substr(dot);
  std::transform(extension.begin(), extension.end(), extension.begin(), [](unsigned char c) { return std::tolower(c); });
  if (extension == ".jsonl") return FileForm::kJsonl;
  if (extension == ".tsv") return FileForm::kTsv;
  if (extension == ".csv") return FileForm::kCsv;
  if (extension == ".txt") return FileForm::kText;
  throw_error(ExitCode::kUsage, setting, " ", path, ": the name must end in .jsonl, .tsv, .csv or .txt, which says how to read it",
              extension == ".json" ? " (one JSON object a line: .jsonl)" : "");
}

std::unique_ptr<RowReader> open_rows(const std::string& path, const ReadOptions& options) {
  FileForm form = file_form(path, options.setting);
  if (form == FileForm::kJsonl) return detail::open_jsonl(path, options);
  if (form != FileForm::kText) return detail::open_delimited(path, options, form);
  if (options.task == Task::kTextClassification && options.read_labels) {
    throw_error(ExitCode::kData, path, ":1: a .txt file has no column \"", options.label_col,
                "\"; text-classification needs .jsonl, .tsv or .csv with labels");
  }
  if (!options.text_pair_col.empty()) {
    throw_error(ExitCode::kData, path, ":1: a .txt file has no column \"", options.text_pair_col,
                "\"; pairs of texts need .jsonl, .tsv or .csv with named columns");
  }
  return std::make_unique<PlainTextReader>(path, options);
}

}  // namespace plait
