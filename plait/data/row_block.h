// RowBlock: the token rows of a data set in columns, read-only, in memory or as a mapped cache file; and the cache file's format.
// Invariant: offsets ascend from 0 to ids.size(); optional columns are empty or as long as ids. Thread safe once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plait/data/dataset.h"

namespace plait::detail {

// What building fills.
struct RowColumns {
  std::vector<int64_t> offsets{0};  // rows + 1, into ids
  std::vector<int32_t> ids;
  std::vector<int32_t> attention_mask, token_types, labels;  // empty = absent in every row
  std::vector<int64_t> document_starts;                      // into ids, ascending, where a document begins; empty = a row is one document
  std::vector<int32_t> label_index;                          // of each row into label_texts; empty = unlabelled
  std::vector<std::string> label_texts;                      // distinct, in order of appearance
  std::vector<int64_t> label_rows, label_lines;              // where each appeared first: row from 0, line from 1
  int64_t num_cut_rows = 0, num_dropped_tokens = 0, longest_row = 0;

  int64_t num_rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

class RowBlock {
 public:
  // Takes the columns into memory.
  explicit RowBlock(RowColumns columns);
  ~RowBlock();
  RowBlock(const RowBlock&) = delete;
  RowBlock& operator=(const RowBlock&) = delete;

  // Maps a cache file. Null when there is none; when it is damaged or of another key, `damage` says so and null is returned.
  static std::shared_ptr<RowBlock> open_cache(const std::string& path, const std::string& key, std::string& damage);
  // Writes `columns` under a temporary name and renames it to `path`. Errors as AtomicFile.
  static void write_cache(const std::string& path, const std::string& key, const RowColumns& columns);

  // A Dataset over the block; `classes` has the class of each row or is null.
  static Dataset make_dataset(std::shared_ptr<const RowBlock> block, std::shared_ptr<const std::vector<int32_t>> classes);

  std::span<const int64_t> offsets, document_starts;
  std::span<const int32_t> ids, attention_mask, token_types, labels, label_index;
  std::vector<std::string> label_texts;
  std::vector<int64_t> label_rows, label_lines;
  int64_t num_cut_rows = 0, num_dropped_tokens = 0, longest_row = 0;
  bool from_cache = false;

 private:
  RowBlock() = default;
  bool map(const std::string& path, std::string& damage);
  bool find_sections(const std::string& key, std::string& damage);
  bool read_small_things(std::string_view json_text);

  RowColumns columns_;      // in memory
  void* mapped_ = nullptr;  // or mapped
  size_t mapped_bytes_ = 0;
};

}  // namespace plait::detail
