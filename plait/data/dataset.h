// Dataset: the token rows of one data file, immutable, in file order. A row is a text (classification), a window of the token stream
// or a piece of a document (causal LM), or a pre-tokenised line. Rows lie in one read-only block: memory, or a cache file mapped by
// every rank of the host, which share its pages. Copying a Dataset copies a pointer. Reading is safe from many threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/model_shape.h"
#include "plait/data/labels.h"
#include "plait/data/tokenizer.h"

namespace plait {

namespace detail {
class RowBlock;
}

// One row. Spans point into the data set (or into the caller's vectors); optional ones are empty when absent, else as long as ids.
struct TokenRow {
  int64_t row_id = 0;  // row of the data set: the sample id of dropout keys
  std::span<const int32_t> ids;
  std::span<const int32_t> attention_mask;  // 0 = never attended to; empty = all 1
  std::span<const int32_t> token_types;     // empty = all 0
  std::span<const int32_t> labels;          // causal LM, per token, not shifted, -100 = ignored; empty = ids
  std::vector<int32_t> document_starts;     // offsets > 0 where another document begins; empty = one document
  int64_t label_class = -1;                 // classification; -1 = unlabelled
};

class Dataset {
 public:
  Dataset() = default;  // no rows

  int64_t size() const;                         // rows
  TokenRow row(int64_t row_index) const;        // 0 <= row_index < size()
  int64_t row_length(int64_t row_index) const;  // tokens
  int64_t num_tokens() const;                   // of all rows
  int64_t longest_row() const;                  // tokens
  int64_t num_cut_rows() const;                 // rows whose text was longer than sequence_length and was cut
  int64_t num_dropped_tokens() const;           // tail of the stream that filled no window
  bool has_labels() const;                      // classification: every row has a class
  bool from_cache() const;                      // read from a cache file instead of tokenised now
  std::string digest() const;                   // of all rows and their classes: equal where these are

 private:
  friend class detail::RowBlock;
  std::shared_ptr<const detail::RowBlock> block_;
  std::shared_ptr<const std::vector<int32_t>> classes_;  // class of each row; null = unlabelled
};

// What tokenising has done so far, for a progress line.
struct LoadProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the data file
  int64_t rows_done = 0;
};

enum class LabelUse {
  kTraining,  // labels required; an empty LabelMap is filled from this file
  kKnown,     // labels required and looked up in the LabelMap
  kIgnored,   // predicting: a label column need not exist
};

struct LoadOptions {
  std::string cache_dir;                              // created when absent; empty = no cache
  std::string tokenizer_path;                         // tokenizer.json, whose bytes enter the cache key; empty = no cache for text files
  int64_t num_threads = 0;                            // 0 = all cores
  LabelUse label_use = LabelUse::kTraining;           // classification only
  std::function<void(const LoadProgress&)> progress;  // called from the loading thread, about ten times a second and at the end
  std::string setting = "dataset.train.file";         // named in messages
};

// Reads, checks and tokenises a data file (docs/data.md has the forms). Pure function of the file, the settings and the tokenizer:
// every rank gets the same rows. Safe to call on many ranks and threads at once: with a cache one of them tokenises, the others wait
// and map its result. No communication.
// `tokenizer` may be null for pre-tokenised .jsonl. `labels` is read and, with kTraining and empty names, filled; may be
// null for causal LM.
// Throws Error(kData) with file:line for anything wrong in rows, Error(kUsage) for settings and an absent file,
// Error(kCheckpoint) when tokenizer and model do not fit, Error(kResource) when the disk is full.
Dataset load_dataset(const DataFileConfig& file, Task task, const PreprocessorConfig& preprocessor, const Tokenizer* tokenizer,
                     const ModelShape& shape, LabelMap* labels, const LoadOptions& options);

// "14400 rows, 257760 tokens, longest 64, 28 rows cut at sequence_length": for the log.
std::string summary(const Dataset& dataset);

// The sequence length that applies: the setting, or the model's limit when it is 0. Throws Error(kUsage) when the setting
// is beyond the model.
int64_t resolve_sequence_length(const PreprocessorConfig& preprocessor, const ModelShape& shape);

}  // namespace plait
