// Rows of a file -> token columns, on all cores. The result is the same for any number of threads.
#pragma once

#include <cstdint>
#include <string>

#include "plait/data/dataset.h"
#include "plait/data/row_block.h"
#include "plait/data/row_reader.h"

namespace plait::detail {

// Everything the tokens depend on besides the bytes of the file and the tokenizer.
struct BuildSettings {
  ReadOptions read;
  int64_t max_rows = 0;  // rows of the data set; 0 = all
  int64_t sequence_length = 0;
  BlockMode block = BlockMode::kStream;
  bool add_eos = false;
  bool document_attention = false;
  int64_t vocab_size = 0, type_vocab_size = 0;
  int64_t eos_token_id = -1;  // with add_eos

  // One line of text; enters the cache key.
  std::string describe() const;
};

// Errors as load_dataset. `tokenizer` may be null for pre-tokenised rows.
RowColumns build_rows(const std::string& path, const BuildSettings& settings, const Tokenizer* tokenizer, const LoadOptions& options);

}  // namespace plait::detail
