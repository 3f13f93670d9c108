// What the head of a safetensors file says: names, types, shapes, byte spans. No tensors, no payload is read.
// Invariant of a parsed header: names are unique, every span fits its shape and type, and the spans cover the data section
// exactly once, without hole or overlap. All faults are Error(kCheckpoint) that name the file and the tensor.
// Format: 8 bytes little-endian header length, JSON header, data section (as Hugging Face's safetensors 0.4 and later).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace plait {

// Types whose elements are whole bytes. The packed 4- and 6-bit types are refused by name.
enum class FileDType { kBool, kU8, kI8, kF8E5M2, kF8E4M3, kF8E8M0, kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kC64, kF64, kI64, kU64 };

int64_t element_bytes(FileDType dtype);
const char* dtype_name(FileDType dtype);  // as in the file: "F32"

constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // Hugging Face's own limit

struct TensorEntry {
  std::string name;
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes into the data section
  int64_t numel() const { return (end - begin) / element_bytes(dtype); }
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in order of their data
  std::map<std::string, std::string> metadata;  // "__metadata__"
  int64_t data_begin = 0;                       // byte of the file where the data section starts
  int64_t data_bytes = 0;

  const TensorEntry* find(const std::string& name) const;
  std::unordered_map<std::string, size_t> index_by_name;  // into tensors
};

// `head`: the first bytes of the file, at least 8 + the header's length of them (or the whole file when it is shorter).
// `file_bytes`: size of the whole file. `origin`: file name for messages.
SafetensorsHeader parse_safetensors_header(std::string_view head, int64_t file_bytes, const std::string& origin);

// Reads only the head of the file.
SafetensorsHeader read_safetensors_header(const std::string& path);

// "[30522, 384]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace plait
