// Temporary folders and small safetensors files for the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/base/text.h"
#include "plait/config/safetensors_header.h"

namespace plait::test {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct FileTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
FileTensor file_tensor(const std::string& dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return {dtype, std::move(shape), bytes};
}

inline FileTensor ramp(std::vector<int64_t> shape, float start = 0) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(start + static_cast<float>(i));
  return file_tensor("F32", std::move(shape), values);
}

inline std::string safetensors_bytes(const std::map<std::string, FileTensor>& tensors, const std::string& padding = "") {
  std::string json = "{", data;
  for (const auto& [name, tensor] : tensors) {
    json += cat(json.size() > 1 ? "," : "", "\"", name, "\":{\"dtype\":\"", tensor.dtype, "\",\"shape\":[", join(tensor.shape, ","),
                "],\"data_offsets\":[", data.size(), ",", data.size() + tensor.bytes.size(), "]}");
    data += tensor.bytes;
  }
  json += "}" + padding;
  std::string length(8, '\0');
  uint64_t size = json.size();
  std::memcpy(length.data(), &size, 8);
  return length + json + data;
}

// Runs f, which must throw Error(code) whose message holds every word.
template <class F>
void expect_error(ExitCode code, const std::vector<std::string>& words, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const auto& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what() << "\n lacks " << word;
    return;
  }
  ADD_FAILURE() << "no error; expected one with: " << join(words);
}

}  // namespace plait::test
