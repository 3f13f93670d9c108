// The header parser against whole, damaged and hostile heads. Every refusal is exit code 4 and names the file.
#include "plait/config/safetensors_header.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "plait/base/error.h"

namespace plait {
namespace {

std::string file_of(const std::string& json, int64_t data_bytes, int64_t length = -1) {
  auto n = static_cast<uint64_t>(length < 0 ? static_cast<int64_t>(json.size()) : length);
  std::string out(8, '\0');
  std::memcpy(out.data(), &n, 8);
  return out + json + std::string(static_cast<size_t>(data_bytes), 'x');
}

SafetensorsHeader parse(const std::string& bytes) {
  return parse_safetensors_header(bytes, static_cast<int64_t>(bytes.size()), "m.safetensors");
}

std::string refusal(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("m.safetensors"), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

TEST(SafetensorsHeader, ReadsNamesShapesAndMetadata) {
  auto h = parse(file_of("{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "F32", "[2,3]", "[4,28]") + "," +
                             entry("a", "BF16", "[2]", "[0,4]") + "," + entry("scalar", "I64", "[]", "[28,36]") + "," +
                             entry("none", "F16", "[0,7]", "[36,36]") + "}  ",
                         36));
  ASSERT_EQ(h.tensors.size(), 4u);
  EXPECT_EQ(h.tensors[0].name, "a");
  EXPECT_EQ(h.find("b")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(h.find("b")->dtype, FileDType::kF32);
  EXPECT_EQ(h.find("b")->numel(), 6);
  EXPECT_EQ(h.find("scalar")->numel(), 1);
  EXPECT_EQ(h.find("none")->numel(), 0);
  EXPECT_EQ(h.find("c"), nullptr);
  EXPECT_EQ(h.metadata.at("format"), "pt");
  EXPECT_EQ(parse(file_of("{}", 0)).tensors.size(), 0u);
}

TEST(SafetensorsHeader, Refusals) {
  struct Row {
    std::string bytes;
    std::vector<std::string> words;
  };
  std::string good = entry("a", "F32", "[2]", "[0,8]");
  const std::vector<Row> rows{
      {"", {"too few"}},
      {"1234567", {"too few"}},
      {file_of("{}", 0, 3), {"truncated"}},
      {file_of("{}", 0, 100000001), {"100000001", "limit"}},
      {file_of("{}", 0, INT64_MAX), {"limit"}},
      {file_of("", 0), {"does not start with '{'"}},
      {file_of("[]", 0), {"does not start with '{'"}},
      {file_of(" {}", 0), {"does not start with '{'"}},
      {file_of("{" + good, 8), {"not valid JSON"}},
      {file_of("{" + good + "} x", 8), {"not valid JSON"}},
      {file_of("{" + good + "}" + std::string("\0\0", 2), 8), {"NUL"}},
      {file_of("{\"a\xff\":1}", 0), {"not valid JSON"}},
      {file_of("{" + good + "," + good + "}", 8), {"\"a\"", "twice"}},
      {file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), {"__metadata__", "twice"}},
      {file_of("{\"__metadata__\":{\"a\":1}}", 0), {"__metadata__", "number"}},
      {file_of("{\"__metadata__\":{\"a\":{}}}", 0), {"__metadata__", "object"}},
      {file_of("{\"a\":1}", 0), {"\"a\"", "object"}},
      {file_of("{\"a\":{}}", 0), {"\"a\"", "dtype"}},
      {file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8), {"data_offsets"}},
      {file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}", 8), {"shape", "twice"}},
      {file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"stride\":[2],\"data_offsets\":[0,8]}}", 8), {"stride", "unknown"}},
      {file_of("{" + entry("a", "F33", "[2]", "[0,8]") + "}", 8), {"F33", "BF16"}},
      {file_of("{" + entry("a", "F4", "[2]", "[0,1]") + "}", 1), {"F4"}},
      {file_of("{" + entry("a", "F32", "[-2]", "[0,8]") + "}", 8), {"negative"}},
      {file_of("{" + entry("a", "F32", "[2.0]", "[0,8]") + "}", 8), {"fraction"}},
      {file_of("{" + entry("a", "F32", "[\"2\"]", "[0,8]") + "}", 8), {"string"}},
      {file_of("{" + entry("a", "F32", "[[2]]", "[0,8]") + "}", 8), {"array"}},
      {file_of("{" + entry("a", "F32", "2", "[0,8]") + "}", 8), {"number"}},
      {file_of("{" + entry("a", "F32", "null", "[0,8]") + "}", 8), {"null"}},
      {file_of("{" + entry("a", "F32", "[2]", "[0,8,9]") + "}", 8), {"3 data_offsets"}},
      {file_of("{" + entry("a", "F32", "[2]", "[8,0]") + "}", 8), {"data_offsets"}},
      {file_of("{" + entry("a", "F32", "[2]", "[0,18446744073709551615]") + "}", 8), {"too large"}},
      {file_of("{" + entry("a", "F32", "[2]", "[0,8]") + "}", 7), {"truncated"}},
      {file_of("{" + entry("a", "F32", "[2]", "[0,8]") + "}", 9), {"1 bytes", "no tensor"}},
      {file_of("{" + entry("a", "F32", "[3]", "[0,8]") + "}", 8), {"[3]", "12", "8"}},
      {file_of("{" + entry("a", "F32", "[4611686018427387904,4]", "[0,8]") + "}", 8), {"2^63"}},
      {file_of("{" + good + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12), {"overlap", "\"a\"", "\"b\""}},
      {file_of("{" + good + "," + entry("b", "F32", "[2]", "[12,20]") + "}", 20), {"hole", "[8, 12)"}},
      {file_of("{" + entry("b", "F32", "[2]", "[4,12]") + "}", 12), {"hole"}},
      {file_of("{\"a\":" + std::string(50000, '['), 0), {"\"a\""}},
  };
  for (const auto& row : rows) {
    std::string message = refusal(row.bytes);
    EXPECT_FALSE(message.empty()) << "accepted: " << row.bytes.substr(8, 200);
    for (const auto& word : row.words) EXPECT_NE(message.find(word), std::string::npos) << message << "\n lacks " << word;
  }
}

// Any cut and any single changed byte of the head: parsed or refused with code 4, never anything else; a cut is always refused.
TEST(SafetensorsHeader, EveryByteFlippedAndEveryCut) {
  std::string good = file_of(
      "{\"__metadata__\":{\"format\":\"pt\"}," + entry("w", "F32", "[2,3]", "[0,24]") + "," + entry("b", "F16", "[3]", "[24,30]") + "}",
      30);
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(refusal(good.substr(0, size)).empty()) << size;
  size_t refused = 0;
  for (size_t i = 0; i < good.size() - 30; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      refused += !refusal(bad).empty();
    }
  }
  EXPECT_GT(refused, 8 * (good.size() - 30) * 2 / 3);  // what is left changes a name or a metadata string
}

TEST(SafetensorsHeader, ReadsFiles) {
  auto h = read_safetensors_header(PLAIT_TEST_DATA "/golden/models/bert/model.safetensors");
  EXPECT_EQ(h.tensors.size(), 41u);
  EXPECT_EQ(h.find("bert.embeddings.word_embeddings.weight")->shape, (std::vector<int64_t>{256, 32}));
  for (const char* path : {"/nowhere.safetensors", PLAIT_TEST_DATA}) {
    try {
      read_safetensors_header(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    }
  }
}

}  // namespace
}  // namespace plait
