// What the data tests share: a temporary folder, a tokenizer whose ids are bytes, and the message of a refused input.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/data/dataset.h"

namespace plait {

// Id of byte b is b; 256 and 257 stand around a text with special tokens. "split" words change across pieces: a run of two line ends
// is one token (258), so cutting a text inside the run shows.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    std::vector<int32_t> ids;
    if (add_special_tokens) ids.push_back(256);
    for (size_t i = 0; i < text.size(); ++i) {
      bool pair = text.substr(i, 2) == "\n\n";
      ids.push_back(pair ? 258 : static_cast<unsigned char>(text[i]));
      i += pair;
    }
    if (add_special_tokens) ids.push_back(257);
    return ids;
  }
  std::vector<int32_t> encode_truncated(std::string_view text, int64_t max_tokens, bool* was_cut) const override {
    std::vector<int32_t> ids = encode(text, true);
    *was_cut = static_cast<int64_t>(ids.size()) > max_tokens;
    if (*was_cut) {
      ids.resize(static_cast<size_t>(max_tokens));
      ids.back() = 257;
    }
    return ids;
  }
  EncodedPair encode_pair(std::string_view first, std::string_view second, int64_t max_tokens) const override {
    EncodedPair out;
    for (auto [text, type] : {std::pair(first, 0), std::pair(second, 1)}) {
      std::vector<int32_t> piece = encode(text, true);
      out.ids.insert(out.ids.end(), piece.begin() + type, piece.end());
      out.token_types.resize(out.ids.size(), type);
    }
    out.was_cut = static_cast<int64_t>(out.ids.size()) > max_tokens;
    if (out.was_cut) {
      out.ids.resize(static_cast<size_t>(max_tokens));
      out.token_types.resize(out.ids.size());
    }
    return out;
  }
  std::string decode(const std::vector<int32_t>& ids, bool) const override {
    std::string text;
    for (int32_t id : ids) text += id == 258 ? "\n\n" : id < 256 ? std::string(1, static_cast<char>(id)) : "";
    return text;
  }
  int64_t vocab_size() const override { return 259; }
  int64_t num_special_tokens() const override { return 2; }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }
  std::optional<std::string> id_token(int32_t) const override { return std::nullopt; }
};

class DataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait-data-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    shape_.vocab_size = 260;
    shape_.max_positions = 16;
    shape_.type_vocab_size = 2;
    shape_.eos_token_id = 259;
    write("tokenizer.json", "{}");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  Dataset load(const std::string& path, Task task, LabelMap* labels = nullptr) {
    file_.file = path;
    return load_dataset(file_, task, preprocessor_, &tokenizer_, shape_, labels ? labels : &labels_, options_);
  }
  // "CODE message" of an Error, "" when there is none.
  static std::string refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return cat(static_cast<int>(error.code()), " ", error.what());
    }
    return "";
  }
  static std::vector<int32_t> ids(const TokenRow& row) { return {row.ids.begin(), row.ids.end()}; }
  static std::string text_of(const TokenRow& row) { return ByteTokenizer().decode(ids(row), true); }

  std::filesystem::path folder_;
  ByteTokenizer tokenizer_;
  ModelShape shape_;
  DataFileConfig file_;
  PreprocessorConfig preprocessor_;
  LoadOptions options_;
  LabelMap labels_;
};

}  // namespace plait
