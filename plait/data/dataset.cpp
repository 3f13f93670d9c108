#include "plait/data/dataset.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "plait/base/atomic_file.h"
#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/base/sha256.h"
#include "plait/data/row_block.h"
#include "plait/data/row_builder.h"
#include "plait/data/row_reader.h"

namespace plait {

namespace {

// Raised when the same inputs would give other rows or another file.
constexpr int kCacheVersion = 1;

// "size:hash" of a file's bytes.
std::string content_key(const std::string& path, const std::string& setting) {
  int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    ExitCode code = errno == EMFILE || errno == ENFILE ? ExitCode::kResource : ExitCode::kUsage;
    throw_error(code, setting, " ", path, " cannot be read: ", static_cast<const char*>(std::strerror(errno)));
  }
  XXH3_state_t* state = XXH3_createState();
  PLAIT_CHECK(state);
  XXH3_128bits_reset(state);
  std::vector<char> buffer(size_t{1} << 20);
  int64_t num_bytes = 0;
  ssize_t got;
  while ((got = read(descriptor, buffer.data(), buffer.size())) > 0 || (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    XXH3_128bits_update(state, buffer.data(), static_cast<size_t>(got));
    num_bytes += got;
  }
  int fault = errno;
  XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  close(descriptor);
  if (got < 0) {
    throw_error(fault == EISDIR ? ExitCode::kUsage : ExitCode::kResource, setting, " ", path,
                " cannot be read: ", static_cast<const char*>(std::strerror(fault)));
  }
  return cat(num_bytes, ":", hash.high64, ":", hash.low64);
}

// Held while one rank tokenises. Where the file system has no locks every rank tokenises for itself: slower, never wrong.
class CacheLock {
 public:
  explicit CacheLock(const std::string& path) : descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) throw_file_error("create", path, errno);
    while (flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {}
  }
  ~CacheLock() { close(descriptor_); }
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

 private:
  int descriptor_;
};

std::shared_ptr<const detail::RowBlock> load_cached(const std::string& path, const detail::BuildSettings& settings,
                                                    const Tokenizer* tokenizer, const LoadOptions& options) {
  namespace fs = std::filesystem;
  std::string tokenizer_key = tokenizer ? content_key(options.tokenizer_path, "tokenizer") : "none";
  std::string key =
      sha256_hex(cat("plait rows ", kCacheVersion, "\n", content_key(path, settings.read.setting), "\n",
                     static_cast<int>(file_form(path, settings.read.setting)), "\n", tokenizer_key, "\n", settings.describe()));
  std::string base = (fs::path(options.cache_dir) / cat("rows-", key.substr(0, 32))).string(), file = base + ".bin", damage;
  if (auto block = detail::RowBlock::open_cache(file, key, damage)) return block;

  std::error_code fault;
  fs::create_directories(options.cache_dir, fault);
  if (fault) throw_file_error("create the cache folder", options.cache_dir, fault.value());
  CacheLock lock(base + ".lock");
  if (auto block = detail::RowBlock::open_cache(file, key, damage)) return block;  // another rank made it meanwhile
  if (!damage.empty()) log_warning("cache ", file, " is damaged (", damage, "): made again from ", path);
  detail::RowColumns columns = detail::build_rows(path, settings, tokenizer, options);
  detail::RowBlock::write_cache(file, key, columns);
  auto block = detail::RowBlock::open_cache(file, key, damage);
  if (!block) return std::make_shared<detail::RowBlock>(std::move(columns));
  block->from_cache = false;
  return block;
}

// Class of each row; fills `labels` from a training file.
std::shared_ptr<const std::vector<int32_t>> resolve_classes(const std::string& path, const detail::RowBlock& block, LabelUse use,
                                                            LabelMap& labels) {
  if (labels.empty()) {
    PLAIT_CHECK(use == LabelUse::kTraining, "labels are looked up before the training file was read");
    labels = labels_of_training_file(block.label_texts);
  }
  std::vector<int32_t> class_of_text;
  for (size_t i = 0; i < block.label_texts.size(); ++i) {
    auto found = labels.find(block.label_texts[i]);
    if (!found) {
      std::string near = nearest(block.label_texts[i], labels.names);
      throw_error(ExitCode::kData, path, ":", block.label_lines[i], ": row ", block.label_rows[i], ": unknown label \"",
                  block.label_texts[i], "\"; the known labels are: ", list_labels(labels),
                  near.empty() ? "" : cat(". Did you mean \"", near, "\"?"));
    }
    class_of_text.push_back(static_cast<int32_t>(*found));
  }
  auto classes = std::make_shared<std::vector<int32_t>>(block.label_index.size());
  for (size_t r = 0; r < classes->size(); ++r) (*classes)[r] = class_of_text[static_cast<size_t>(block.label_index[r])];
  return classes;
}

detail::BuildSettings build_settings(const DataFileConfig& file, Task task, const PreprocessorConfig& preprocessor, const ModelShape& shape,
                                     const LoadOptions& options) {
  bool causal = task == Task::kTextGeneration;
  auto causal_only = [&](const char* name, bool on) {
    if (on && !causal)
      throw_error(ExitCode::kUsage, "preprocessor.", name, ": true is for text-generation; the task is text-classification: leave it out");
  };
  causal_only("add_eos", preprocessor.add_eos);
  causal_only("document_attention", preprocessor.document_attention);
  if (preprocessor.add_eos && !shape.eos_token_id) {
    throw_error(ExitCode::kUsage, "preprocessor.add_eos: true needs eos_token_id in the model's config.json, which has none");
  }
  if (file.rows < 0) throw_error(ExitCode::kUsage, "rows ", file.rows, " of ", options.setting, " must be 0 (all) or more");
  detail::BuildSettings settings;
  settings.read = {
      file.text_col,  causal ? "" : file.text_pair_col, file.label_col, task, !causal && options.label_use != LabelUse::kIgnored,
      options.setting};
  settings.max_rows = file.rows;
  settings.sequence_length = resolve_sequence_length(preprocessor, shape);
  settings.block = preprocessor.block;
  settings.add_eos = preprocessor.add_eos;
  settings.document_attention = preprocessor.document_attention;
  settings.vocab_size = shape.vocab_size;
  settings.type_vocab_size = shape.type_vocab_size;
  settings.eos_token_id = shape.eos_token_id.value_or(-1);
  return settings;
}

}  // namespace

int64_t Dataset::size() const { return block_ ? static_cast<int64_t>(block_->offsets.size()) - 1 : 0; }
int64_t Dataset::num_tokens() const { return block_ ? block_->offsets.back() : 0; }
int64_t Dataset::longest_row() const { return block_ ? block_->longest_row : 0; }
int64_t Dataset::num_cut_rows() const { return block_ ? block_->num_cut_rows : 0; }
int64_t Dataset::num_dropped_tokens() const { return block_ ? block_->num_dropped_tokens : 0; }
bool Dataset::has_labels() const { return classes_ != nullptr; }
bool Dataset::from_cache() const { return block_ && block_->from_cache; }

std::string Dataset::digest() const {
  if (!block_) return "no rows";
  XXH3_state_t* state = XXH3_createState();
  PLAIT_CHECK(state);
  XXH3_128bits_reset(state);
  auto add = [&](auto column) {
    uint64_t num_bytes = column.size_bytes();
    XXH3_128bits_update(state, &num_bytes, sizeof num_bytes);
    XXH3_128bits_update(state, column.data(), num_bytes);
  };
  add(block_->offsets);
  add(block_->document_starts);
  for (auto column : {block_->ids, block_->attention_mask, block_->token_types, block_->labels}) add(column);
  if (classes_) add(std::span<const int32_t>(*classes_));
  XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return cat(hash.high64, ":", hash.low64);
}

int64_t Dataset::row_length(int64_t row_index) const {
  PLAIT_CHECK(row_index >= 0 && row_index < size(), "row ", row_index, " of ", size());
  return block_->offsets[row_index + 1] - block_->offsets[row_index];
}

TokenRow Dataset::row(int64_t row_index) const {
  size_t length = static_cast<size_t>(row_length(row_index));
  int64_t begin = block_->offsets[row_index], end = begin + static_cast<int64_t>(length);
  auto piece = [&](std::span<const int32_t> column) {
    return column.empty() ? column : column.subspan(static_cast<size_t>(begin), length);
  };
  TokenRow row;
  row.row_id = row_index;
  row.ids = piece(block_->ids);
  row.attention_mask = piece(block_->attention_mask);
  row.token_types = piece(block_->token_types);
  row.labels = piece(block_->labels);
  if (classes_) row.label_class = (*classes_)[static_cast<size_t>(row_index)];
  auto starts = block_->document_starts;
  for (auto at = std::upper_bound(starts.begin(), starts.end(), begin); at != starts.end() && *at < end; ++at) {
    row.document_starts.push_back(static_cast<int32_t>(*at - begin));
  }
  return row;
}

std::string summary(const Dataset& dataset) {
  std::string text = cat(dataset.size(), " rows, ", dataset.num_tokens(), " tokens, longest ", dataset.longest_row());
  if (dataset.num_cut_rows() > 0) text += cat(", ", dataset.num_cut_rows(), " rows cut at sequence_length");
  if (dataset.num_dropped_tokens() > 0) text += cat(", last ", dataset.num_dropped_tokens(), " tokens fill no window and are left out");
  if (dataset.from_cache()) text += " (from the cache)";
  return text;
}

int64_t resolve_sequence_length(const PreprocessorConfig& preprocessor, const ModelShape& shape) {
  int64_t length = preprocessor.sequence_length;
  if (length < 0) throw_error(ExitCode::kUsage, "preprocessor.sequence_length ", length, " must be 0 (the model's limit) or more");
  if (shape.max_positions > 0 && length > shape.max_positions) {
    throw_error(ExitCode::kUsage, "preprocessor.sequence_length ", length, " is beyond the model's ", shape.max_positions,
                " positions; use at most ", shape.max_positions);
  }
  return length > 0 ? length : shape.max_positions;
}

Dataset load_dataset(const DataFileConfig& file, Task task, const PreprocessorConfig& preprocessor, const Tokenizer* tokenizer,
                     const ModelShape& shape, LabelMap* labels, const LoadOptions& options) {
  detail::BuildSettings settings = build_settings(file, task, preprocessor, shape, options);
  file_form(file.file, options.setting);
  bool cached = !options.cache_dir.empty() && (!tokenizer || !options.tokenizer_path.empty());
  std::shared_ptr<const detail::RowBlock> block =
      cached ? load_cached(file.file, settings, tokenizer, options)
             : std::make_shared<detail::RowBlock>(detail::build_rows(file.file, settings, tokenizer, options));
  if (!settings.read.read_labels) return detail::RowBlock::make_dataset(block, nullptr);
  PLAIT_CHECK(labels, "classification needs a LabelMap");
  auto classes = resolve_classes(file.file, *block, options.label_use, *labels);
  return detail::RowBlock::make_dataset(block, classes);
}

}  // namespace plait
