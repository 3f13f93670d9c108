#include <algorithm>
#include <optional>

#include "plait/base/error.h"
#include "plait/data/row_reader.h"
#include "plait/data/text_lines.h"

namespace plait::detail {

namespace {

// .csv is RFC 4180: comma, fields in double quotes may hold commas, line ends and "" for a quote. .tsv is split at tabs and nothing
// else: quotes are ordinary characters there, as in the GLUE files. The first line names the columns.
class DelimitedReader : public RowReader {
 public:
  DelimitedReader(const std::string& path, const ReadOptions& options, FileForm form);

  bool next(FileRow& row) override;
  int64_t bytes_read() const override { return lines_.bytes_read(); }
  int64_t file_bytes() const override { return lines_.file_bytes(); }

 private:
  template <class... Pieces>
  [[noreturn]] void fail(int64_t line, const Pieces&... pieces) const {
    throw_error(ExitCode::kData, lines_.path(), ":", line, ": ", pieces...);
  }
  bool read_record(std::vector<std::string>& fields, int64_t& first_line);
  void split_tabs(std::string_view line, std::vector<std::string>& fields) const;
  void split_csv(std::string_view line, std::vector<std::string>& fields);
  std::string_view read_quoted(std::string_view rest, std::string& field);
  size_t column(const std::string& name) const;
  std::string text_of(size_t column, int64_t line) const;

  TextLines lines_;
  bool csv_;
  bool read_labels_;
  std::vector<std::string> columns_, fields_;
  size_t text_column_ = 0, label_column_ = 0;
  std::optional<size_t> pair_column_;
};

DelimitedReader::DelimitedReader(const std::string& path, const ReadOptions& options, FileForm form)
    : lines_(path, options.setting), csv_(form == FileForm::kCsv),
      read_labels_(options.task == Task::kTextClassification && options.read_labels) {
  int64_t line = 1;
  if (!read_record(columns_, line)) fail(1, "no header: the first line names the columns");
  text_column_ = column(options.text_col);
  if (!options.text_pair_col.empty()) pair_column_ = column(options.text_pair_col);
  if (read_labels_) label_column_ = column(options.label_col);
}

size_t DelimitedReader::column(const std::string& name) const {
  auto at = std::find(columns_.begin(), columns_.end(), name);
  int64_t line = lines_.line_number();
  if (at == columns_.end()) {
    std::string near = nearest(name, columns_);
    fail(line, "no column \"", name, "\"; the columns here are: ", join(columns_),
         near.empty() ? "" : cat(". Did you mean \"", near, "\"?"));
  }
  if (std::find(at + 1, columns_.end(), name) != columns_.end()) fail(line, "column \"", name, "\" occurs twice in the header");
  return static_cast<size_t>(at - columns_.begin());
}

void DelimitedReader::split_tabs(std::string_view line, std::vector<std::string>& fields) const {
  line = without_carriage_return(line);
  for (size_t tab; (tab = line.find('\t')) != std::string_view::npos; line.remove_prefix(tab + 1)) fields.emplace_back(line.substr(0, tab));
  fields.emplace_back(line);
}

// `rest` begins after the opening quote. Takes further lines until the quote closes; returns what follows the closing quote.
std::string_view DelimitedReader::read_quoted(std::string_view rest, std::string& field) {
  int64_t opened_at = lines_.line_number();
  while (true) {
    size_t quote = rest.find('"');
    if (quote != std::string_view::npos) {
      field.append(rest.substr(0, quote));
      rest.remove_prefix(quote + 1);
      if (!rest.starts_with('"')) return rest;
      field.push_back('"');
      rest.remove_prefix(1);
      continue;
    }
    field.append(rest);
    bool more = lines_.ended_by_newline();
    if (more) field.push_back('\n');
    if (!more || !lines_.next(rest)) fail(opened_at, "a quoted field that begins here is never closed by '\"'");
    if (static_cast<int64_t>(field.size()) > kMaxLineBytes)
      fail(opened_at, "a quoted field is longer than ", kMaxLineBytes, " bytes; is its closing '\"' missing?");
  }
}

void DelimitedReader::split_csv(std::string_view line, std::vector<std::string>& fields) {
  while (true) {
    std::string field;
    if (line.starts_with('"')) {
      line = read_quoted(line.substr(1), field);
      std::string_view after = without_carriage_return(line);
      if (!after.empty() && after[0] != ',') {
        fail(lines_.line_number(), "'", after.substr(0, 1),
             "' after a closing '\"'; a comma or the end of the line must follow (a quote inside quotes is written \"\")");
      }
      fields.push_back(std::move(field));
      if (after.empty()) return;
      line.remove_prefix(1);
      continue;
    }
    size_t comma = line.find(',');
    if (comma == std::string_view::npos) {
      fields.emplace_back(without_carriage_return(line));
      return;
    }
    fields.emplace_back(line.substr(0, comma));
    line.remove_prefix(comma + 1);
  }
}

bool DelimitedReader::read_record(std::vector<std::string>& fields, int64_t& first_line) {
  std::string_view line;
  do {
    if (!lines_.next(line)) return false;
  } while (without_carriage_return(line).empty());
  first_line = lines_.line_number();
  fields.clear();
  csv_ ? split_csv(line, fields) : split_tabs(line, fields);
  return true;
}

std::string DelimitedReader::text_of(size_t column, int64_t line) const {
  const std::string& text = fields_[column];
  if (is_blank(text)) fail(line, "row without text: column \"", columns_[column], "\" is ", text.empty() ? "empty" : "blank");
  return text;
}

bool DelimitedReader::next(FileRow& row) {
  row = FileRow{};
  if (!read_record(fields_, row.line)) return false;
  if (fields_.size() != columns_.size()) {
    fail(row.line, fields_.size(), " fields, but the header names ", columns_.size(), " columns: ", join(columns_));
  }
  row.text = text_of(text_column_, row.line);
  if (pair_column_) row.text_pair = text_of(*pair_column_, row.line);
  if (read_labels_) {
    row.label = fields_[label_column_];
    if (row.label.empty()) fail(row.line, "column \"", columns_[label_column_], "\" is empty; every row needs a label");
  }
  return true;
}

}  // namespace

std::unique_ptr<RowReader> open_delimited(const std::string& path, const ReadOptions& options, FileForm form) {
  return std::make_unique<DelimitedReader>(path, options, form);
}

}  // namespace plait::detail
