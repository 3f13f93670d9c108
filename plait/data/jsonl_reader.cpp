#include <limits>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/data/row_reader.h"
#include "plait/data/text_lines.h"

namespace plait::detail {

namespace {

using Json = nlohmann::json;

class JsonlReader : public RowReader {
 public:
  JsonlReader(const std::string& path, const ReadOptions& options) : lines_(path, options.setting), options_(options) {}

  bool next(FileRow& row) override;
  int64_t bytes_read() const override { return lines_.bytes_read(); }
  int64_t file_bytes() const override { return lines_.file_bytes(); }

 private:
  template <class... Pieces>
  [[noreturn]] void fail(const Pieces&... pieces) const {
    throw_error(ExitCode::kData, lines_.where(), ": ", pieces...);
  }
  Json parse(std::string_view line) const;
  const Json& field(const Json& object, const std::string& name) const;
  std::string text_of(const Json& object, const std::string& name) const;
  std::string label_text(const Json& object, const std::string& name) const;
  std::vector<int32_t> integers(const Json& object, const std::string& name) const;
  void read_tokens(const Json& object, FileRow& row) const;

  TextLines lines_;
  ReadOptions options_;
  int64_t num_rows_ = 0;
  bool pretokenised_ = false;  // as the first row is
};

Json JsonlReader::parse(std::string_view line) const {
  try {
    return Json::parse(line);
  } catch (const Json::exception& fault) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ..." -> what follows the tag
    std::string what = fault.what();
    size_t tag = what.find("] ");
    fail("not valid JSON: ", tag == std::string::npos ? what : what.substr(tag + 2));
  }
}

const Json& JsonlReader::field(const Json& object, const std::string& name) const {
  auto at = object.find(name);
  if (at != object.end()) return *at;
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  std::string near = nearest(name, names);
  fail("no column \"", name, "\"; the columns here are: ", names.empty() ? "(none)" : join(names),
       near.empty() ? "" : cat(". Did you mean \"", near, "\"?"));
}

std::string JsonlReader::text_of(const Json& object, const std::string& name) const {
  const Json& value = field(object, name);
  if (!value.is_string()) fail("row without text: \"", name, "\" is ", value.type_name(), ", not a string");
  std::string text = value.get<std::string>();
  if (is_blank(text)) fail("row without text: \"", name, "\" is ", text.empty() ? "empty" : "blank");
  return text;
}

std::string JsonlReader::label_text(const Json& object, const std::string& name) const {
  const Json& value = field(object, name);
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    if (text.empty()) fail("\"", name, "\" is empty; every row needs a label");
    return text;
  }
  if (value.is_number_unsigned()) return cat(value.get<uint64_t>());
  if (value.is_number_integer()) return cat(value.get<int64_t>());
  fail("\"", name, "\" is ", value.is_number() ? "a number with a fraction" : value.type_name(), "; a label is a string or an integer");
}

std::vector<int32_t> JsonlReader::integers(const Json& object, const std::string& name) const {
  const Json& value = field(object, name);
  if (!value.is_array()) fail("\"", name, "\" is ", value.type_name(), ", not a list of integers");
  std::vector<int32_t> numbers;
  numbers.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_integer()) fail("\"", name, "\"[", numbers.size(), "] is ", item.dump().substr(0, 60), ", not an integer");
    bool fits = item.is_number_unsigned() ? item.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()}
                                          : item.get<int64_t>() >= std::numeric_limits<int32_t>::min();
    if (!fits) fail("\"", name, "\"[", numbers.size(), "] = ", item.dump(), " does not fit 32 bits");
    numbers.push_back(item.get<int32_t>());
  }
  return numbers;
}

void JsonlReader::read_tokens(const Json& object, FileRow& row) const {
  row.ids = integers(object, "input_ids");
  if (row.ids.empty()) fail("\"input_ids\" is empty: a row needs at least one token");
  auto optional_column = [&](const char* name, std::vector<int32_t>& column) {
    auto at = object.find(name);
    if (at == object.end() || at->is_null()) return;
    column = integers(object, name);
    if (column.size() != row.ids.size())
      fail("\"", name, "\" has ", column.size(), " entries, \"input_ids\" has ", row.ids.size(), "; they must be equal");
  };
  optional_column("attention_mask", row.attention_mask);
  optional_column("token_type_ids", row.token_types);
  if (options_.task == Task::kTextGeneration) {
    optional_column("labels", row.labels);
  } else if (options_.read_labels) {
    row.label = label_text(object, "labels");
  }
  bool any_attended = row.attention_mask.empty();
  for (size_t i = 0; i < row.attention_mask.size(); ++i) {
    if (row.attention_mask[i] != 0 && row.attention_mask[i] != 1)
      fail("\"attention_mask\"[", i, "] = ", row.attention_mask[i], " is neither 0 nor 1");
    any_attended = any_attended || row.attention_mask[i] == 1;
  }
  if (!any_attended) fail("\"attention_mask\" is 0 everywhere: the row has nothing to attend to");
}

bool JsonlReader::next(FileRow& row) {
  std::string_view line;
  do {
    if (!lines_.next(line)) return false;
  } while (is_blank(line));
  Json object = parse(line);
  if (!object.is_object()) fail("a row is a JSON object {...}, this is ", object.type_name());
  row = FileRow{};
  row.line = lines_.line_number();
  row.pretokenised = object.contains("input_ids");
  if (num_rows_++ == 0) pretokenised_ = row.pretokenised;
  if (row.pretokenised != pretokenised_) {
    fail(
        pretokenised_ ? "no column \"input_ids\", which the rows before have" : "a column \"input_ids\", which the rows before do not have",
        "; a file is either text or tokens");
  }
  if (row.pretokenised) {
    read_tokens(object, row);
    return true;
  }
  row.text = text_of(object, options_.text_col);
  if (!options_.text_pair_col.empty()) row.text_pair = text_of(object, options_.text_pair_col);
  if (options_.task == Task::kTextClassification && options_.read_labels) row.label = label_text(object, options_.label_col);
  return true;
}

}  // namespace

std::unique_ptr<RowReader> open_jsonl(const std::string& path, const ReadOptions& options) {
  return std::make_unique<JsonlReader>(path, options);
}

}  // namespace plait::detail
