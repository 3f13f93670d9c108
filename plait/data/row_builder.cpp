#include "plait/data/row_builder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "plait/base/error.h"
#include "plait/data/text_lines.h"

namespace plait::detail {

namespace {

constexpr int64_t kBatchRows = 8192, kBatchBytes = 16 << 20;  // read, then tokenised together
constexpr size_t kRowsPerTake = 32;                           // a thread takes at a time

// What the tokenizer made of a row.
struct EncodedRow {
  std::vector<int32_t> ids, token_types;  // token_types of pairs only
  bool was_cut = false;
};

class ProgressMeter {
 public:
  explicit ProgressMeter(const std::function<void(const LoadProgress&)>& tell) : tell_(tell) {}
  void update(const LoadProgress& progress, bool last) {
    auto now = std::chrono::steady_clock::now();
    if (!tell_ || (!last && now - told_ < std::chrono::milliseconds(100))) return;
    told_ = now;
    tell_(progress);
  }

 private:
  const std::function<void(const LoadProgress&)>& tell_;
  std::chrono::steady_clock::time_point told_{};
};

class RowBuilder {
 public:
  RowBuilder(const std::string& path, const BuildSettings& settings, const Tokenizer* tokenizer, const LoadOptions& options)
      : path_(path), settings_(settings), tokenizer_(tokenizer), options_(options), meter_(options.progress),
        causal_(settings.read.task == Task::kTextGeneration) {}

  RowColumns build();

 private:
  template <class... Pieces>
  [[noreturn]] void fail(const FileRow& row, const Pieces&... pieces) const {
    throw_error(ExitCode::kData, path_, ":", row.line, ": row ", num_file_rows_, ": ", pieces...);
  }
  void build_from_whole_text();
  void build_from_rows();
  bool read_batch(RowReader& reader, std::vector<FileRow>& rows);
  void encode(const FileRow& row, EncodedRow& encoded) const;
  void encode_text(const FileRow& row, EncodedRow& encoded) const;
  void encode_batch(const std::vector<FileRow>& rows, std::vector<EncodedRow>& encoded) const;
  void add(const FileRow& row, const EncodedRow& encoded);
  void add_pretokenised(const FileRow& row);
  void add_label(const FileRow& row);
  void add_document(const std::vector<int32_t>& ids);
  void end_row();
  void end_stream();
  void check_vocabulary(const std::vector<int32_t>& ids) const;
  void check_token_types(const std::vector<int32_t>& token_types) const;
  bool pairs() const { return !settings_.read.text_pair_col.empty(); }
  bool streams() const { return causal_ && settings_.block == BlockMode::kStream && !pretokenised_; }
  bool full() const;

  const std::string& path_;
  const BuildSettings& settings_;
  const Tokenizer* tokenizer_;
  const LoadOptions& options_;
  ProgressMeter meter_;
  bool causal_;
  bool pretokenised_ = false;
  int64_t num_file_rows_ = 0;  // added so far
  RowColumns columns_;
  std::unordered_map<std::string, int32_t> label_ids_;
};

bool RowBuilder::full() const {
  if (settings_.max_rows == 0) return false;
  if (!streams()) return columns_.num_rows() >= settings_.max_rows;
  return static_cast<int64_t>(columns_.ids.size()) / settings_.sequence_length >= settings_.max_rows;
}

void RowBuilder::check_vocabulary(const std::vector<int32_t>& ids) const {
  auto largest = std::max_element(ids.begin(), ids.end());
  if (largest == ids.end() || *largest < settings_.vocab_size) return;
  throw_error(ExitCode::kCheckpoint, "the tokenizer gives id ", *largest, ", but the model's vocab_size is ", settings_.vocab_size,
              ": tokenizer.json and config.json do not belong together");
}

void RowBuilder::check_token_types(const std::vector<int32_t>& token_types) const {
  auto largest = std::max_element(token_types.begin(), token_types.end());
  int64_t limit = std::max<int64_t>(settings_.type_vocab_size, 1);
  if (largest == token_types.end() || *largest < limit) return;
  throw_error(ExitCode::kCheckpoint, "the tokenizer gives token type ", *largest, " to pairs of texts, but the model's type_vocab_size is ",
              settings_.type_vocab_size, ": this model was not made for pairs; leave text_pair_col out");
}

void RowBuilder::encode_text(const FileRow& row, EncodedRow& encoded) const {
  if (causal_) {
    encoded.ids = tokenizer_->encode(row.text, false);
  } else if (pairs()) {
    EncodedPair pair = tokenizer_->encode_pair(row.text, row.text_pair, settings_.sequence_length);
    encoded.ids = std::move(pair.ids);
    encoded.token_types = std::move(pair.token_types);
    encoded.was_cut = pair.was_cut;
  } else {
    encoded.ids = tokenizer_->encode_truncated(row.text, settings_.sequence_length, &encoded.was_cut);
  }
}

void RowBuilder::encode(const FileRow& row, EncodedRow& encoded) const {
  if (row.pretokenised) return;
  if (!tokenizer_) {
    throw_error(ExitCode::kCheckpoint, path_,
                " holds text, but the model folder has no tokenizer.json; pre-tokenised .jsonl (input_ids) needs none");
  }
  try {
    encode_text(row, encoded);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData) throw;
    throw_error(ExitCode::kData, path_, ":", row.line, ": ", error.what());
  }
  check_vocabulary(encoded.ids);
  check_token_types(encoded.token_types);
}

// All cores; of several faults the one of the earliest row is thrown, as one thread would.
void RowBuilder::encode_batch(const std::vector<FileRow>& rows, std::vector<EncodedRow>& encoded) const {
  encoded.assign(rows.size(), {});
  std::atomic<size_t> next{0};
  std::mutex mutex;
  size_t first_fault = rows.size();
  std::exception_ptr fault;
  auto work = [&] {
    for (size_t begin; (begin = next.fetch_add(kRowsPerTake)) < rows.size();) {
      for (size_t i = begin; i < std::min(begin + kRowsPerTake, rows.size()); ++i) {
        try {
          encode(rows[i], encoded[i]);
        } catch (...) {
          std::lock_guard lock(mutex);
          if (i < first_fault) {
            first_fault = i;
            fault = std::current_exception();
          }
        }
      }
    }
  };
  size_t num_threads =
      options_.num_threads > 0 ? static_cast<size_t>(options_.num_threads) : std::max(1u, std::thread::hardware_concurrency());
  num_threads = std::min(num_threads, rows.size() / kRowsPerTake + 1);
  {
    std::vector<std::jthread> threads;
    try {
      for (size_t t = 1; t < num_threads; ++t) threads.emplace_back(work);
    } catch (const std::system_error&) {
      // No more threads to be had: those that started and this one do it.
    }
    work();
  }
  if (fault) std::rethrow_exception(fault);
}

void RowBuilder::end_row() {
  int64_t end = static_cast<int64_t>(columns_.ids.size());
  columns_.longest_row = std::max(columns_.longest_row, end - columns_.offsets.back());
  columns_.offsets.push_back(end);
}

void RowBuilder::add_label(const FileRow& row) {
  if (causal_ || !settings_.read.read_labels) return;
  auto [at, is_new] = label_ids_.try_emplace(row.label, static_cast<int32_t>(columns_.label_texts.size()));
  if (is_new) {
    columns_.label_texts.push_back(row.label);
    columns_.label_rows.push_back(num_file_rows_);
    columns_.label_lines.push_back(row.line);
  }
  columns_.label_index.push_back(at->second);
}

void RowBuilder::add_document(const std::vector<int32_t>& ids) {
  if (ids.empty() && !settings_.add_eos) return;
  auto& all = columns_.ids;
  size_t begin = all.size();
  if (settings_.document_attention && streams()) columns_.document_starts.push_back(static_cast<int64_t>(begin));
  all.insert(all.end(), ids.begin(), ids.end());
  if (settings_.add_eos) all.push_back(static_cast<int32_t>(settings_.eos_token_id));
  if (streams()) return;
  // Its own rows: pieces of sequence_length, the last one shorter.
  std::vector<int32_t> rest(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end());
  all.resize(begin);
  size_t length = static_cast<size_t>(settings_.sequence_length);
  for (size_t at = 0; at < rest.size() && !full(); at += length) {
    size_t stop = std::min(at + length, rest.size());
    all.insert(all.end(), rest.begin() + static_cast<std::ptrdiff_t>(at), rest.begin() + static_cast<std::ptrdiff_t>(stop));
    end_row();
  }
}

void RowBuilder::add_pretokenised(const FileRow& row) {
  int64_t length = static_cast<int64_t>(row.ids.size());
  if (settings_.add_eos) {
    fail(row,
         "preprocessor.add_eos: true cannot be honoured, the rows are tokens already; put the eos id into input_ids and leave add_eos out");
  }
  if (pairs()) {
    fail(row, "text_pair_col: ", settings_.read.text_pair_col,
         " cannot be honoured, the rows are tokens already; put both texts into input_ids and token_type_ids and leave it out");
  }
  if (length > settings_.sequence_length) {
    fail(row, "input_ids has ", length, " tokens, more than sequence_length ", settings_.sequence_length,
         "; pre-tokenised rows are never cut");
  }
  auto in_range = [&](const char* name, const std::vector<int32_t>& column, int64_t limit, const char* limit_name, bool ignored_allowed) {
    for (size_t i = 0; i < column.size(); ++i) {
      if ((column[i] >= 0 && column[i] < limit) || (ignored_allowed && column[i] == -100)) continue;
      fail(row, name, "[", i, "] = ", column[i], " is not in 0..", limit - 1, " (", limit_name, " ", limit,
           ignored_allowed ? ") and not -100" : ")");
    }
  };
  in_range("input_ids", row.ids, settings_.vocab_size, "the model's vocab_size", false);
  in_range("labels", row.labels, settings_.vocab_size, "the model's vocab_size", true);
  in_range("token_type_ids", row.token_types, std::max<int64_t>(settings_.type_vocab_size, 1), "the model's type_vocab_size", false);

  // A column that earlier rows lacked is filled up with what its absence means.
  size_t before = columns_.ids.size();
  auto append = [&](std::vector<int32_t>& to, const std::vector<int32_t>& from, int32_t absent, const std::vector<int32_t>* absent_copy) {
    if (to.empty() && from.empty()) return;
    if (to.empty() && before > 0) {
      if (absent_copy) to = *absent_copy;
      to.resize(before, absent);
    }
    if (!from.empty()) {
      to.insert(to.end(), from.begin(), from.end());
    } else if (absent_copy) {
      to.insert(to.end(), row.ids.begin(), row.ids.end());
    } else {
      to.resize(before + row.ids.size(), absent);
    }
  };
  append(columns_.attention_mask, row.attention_mask, 1, nullptr);
  append(columns_.token_types, row.token_types, 0, nullptr);
  append(columns_.labels, row.labels, 0, &columns_.ids);
  columns_.ids.insert(columns_.ids.end(), row.ids.begin(), row.ids.end());
  end_row();
}

void RowBuilder::add(const FileRow& row, const EncodedRow& encoded) {
  if (row.pretokenised) {
    add_label(row);
    add_pretokenised(row);
  } else if (causal_) {
    add_document(encoded.ids);
  } else {
    if (encoded.ids.empty()) fail(row, "the text gives no tokens");
    add_label(row);
    columns_.ids.insert(columns_.ids.end(), encoded.ids.begin(), encoded.ids.end());
    columns_.token_types.insert(columns_.token_types.end(), encoded.token_types.begin(), encoded.token_types.end());
    columns_.num_cut_rows += encoded.was_cut;
    end_row();
  }
  ++num_file_rows_;
}

// The stream's windows; the tail that fills none is dropped.
void RowBuilder::end_stream() {
  int64_t length = settings_.sequence_length, num_tokens = static_cast<int64_t>(columns_.ids.size());
  int64_t num_rows = num_tokens / length;
  if (num_rows == 0) {
    throw_error(ExitCode::kData, path_, ": the whole file is ", num_tokens,
                " tokens, which fill no window of preprocessor.sequence_length ", length, ". Set it to at most ", num_tokens,
                ", or preprocessor.block: document");
  }
  bool limited = settings_.max_rows > 0 && num_rows >= settings_.max_rows;
  if (limited) num_rows = settings_.max_rows;
  columns_.num_dropped_tokens = limited ? 0 : num_tokens - num_rows * length;
  columns_.ids.resize(static_cast<size_t>(num_rows * length));
  for (int64_t r = 1; r <= num_rows; ++r) columns_.offsets.push_back(r * length);
  columns_.longest_row = length;
  auto& starts = columns_.document_starts;
  starts.erase(std::lower_bound(starts.begin(), starts.end(), num_rows * length), starts.end());
}

// Reads no row beyond max_rows where a row of the file is a row of the data set: what follows need not be in order.
bool RowBuilder::read_batch(RowReader& reader, std::vector<FileRow>& rows) {
  rows.clear();
  FileRow row;
  int64_t bytes = 0, wanted = settings_.max_rows - columns_.num_rows();
  while (static_cast<int64_t>(rows.size()) < kBatchRows && bytes < kBatchBytes) {
    bool one_to_one = !causal_ || pretokenised_;
    if (settings_.max_rows > 0 && one_to_one && static_cast<int64_t>(rows.size()) >= wanted) break;
    if (!reader.next(row)) break;
    pretokenised_ = row.pretokenised;
    bytes += static_cast<int64_t>(row.text.size() + row.text_pair.size() + row.ids.size() * sizeof(int32_t));
    rows.push_back(std::move(row));
  }
  return !rows.empty();
}

void RowBuilder::build_from_rows() {
  auto reader = open_rows(path_, settings_.read);
  std::vector<FileRow> rows;
  std::vector<EncodedRow> encoded;
  while (!full() && read_batch(*reader, rows)) {
    encode_batch(rows, encoded);
    for (size_t i = 0; i < rows.size() && !full(); ++i) add(rows[i], encoded[i]);
    meter_.update({reader->bytes_read(), reader->file_bytes(), num_file_rows_}, false);
  }
  if (num_file_rows_ == 0) throw_error(ExitCode::kData, path_, " holds no rows: a data file needs at least one");
  if (pretokenised_ && settings_.document_attention) {
    throw_error(ExitCode::kData, path_,
                " holds token rows: preprocessor.document_attention: true cannot be honoured, a pre-tokenised row is one document");
  }
  if (streams()) end_stream();
  if (columns_.num_rows() == 0) throw_error(ExitCode::kData, path_, ": its text gives no tokens");
  meter_.update({reader->bytes_read(), reader->file_bytes(), num_file_rows_}, true);
}

// One string, one call: the ids are those of the whole text, whatever the tokenizer does at line ends.
void RowBuilder::build_from_whole_text() {
  FileRow row;
  row.line = 1;
  row.text = read_whole_text(path_, settings_.read.setting);
  int64_t num_bytes = static_cast<int64_t>(row.text.size());
  if (is_blank(row.text)) throw_error(ExitCode::kData, path_, " holds no text");
  meter_.update({0, num_bytes, 0}, false);
  EncodedRow encoded;
  encode(row, encoded);
  add(row, encoded);
  end_stream();
  meter_.update({num_bytes, num_bytes, 1}, true);
}

RowColumns RowBuilder::build() {
  bool whole_text = streams() && !settings_.document_attention && file_form(path_, settings_.read.setting) == FileForm::kText;
  whole_text ? build_from_whole_text() : build_from_rows();
  return std::move(columns_);
}

}  // namespace

std::string BuildSettings::describe() const {
  bool causal = read.task == Task::kTextGeneration;
  return cat(causal ? "lm" : "cls", " text_col=", read.text_col.size(), ":", read.text_col, " text_pair_col=", read.text_pair_col.size(),
             ":", read.text_pair_col, " label_col=", read.label_col.size(), ":", read.label_col, " read_labels=", read.read_labels,
             " rows=", max_rows, " length=", sequence_length, " block=", block == BlockMode::kStream ? "stream" : "document",
             " eos=", add_eos ? eos_token_id : -1, " document_attention=", document_attention, " vocab=", vocab_size,
             " types=", type_vocab_size);
}

RowColumns build_rows(const std::string& path, const BuildSettings& settings, const Tokenizer* tokenizer, const LoadOptions& options) {
  return RowBuilder(path, settings, tokenizer, options).build();
}

}  // namespace plait::detail
