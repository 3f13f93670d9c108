#include "plait/config/safetensors_header.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "plait/base/error.h"
#include "plait/config/strict_json.h"

namespace plait {

namespace {

struct DTypeRow {
  FileDType dtype;
  const char* name;
  int64_t bytes;
};
constexpr std::array<DTypeRow, 17> kDTypes{{{FileDType::kBool, "BOOL", 1},
                                            {FileDType::kU8, "U8", 1},
                                            {FileDType::kI8, "I8", 1},
                                            {FileDType::kF8E5M2, "F8_E5M2", 1},
                                            {FileDType::kF8E4M3, "F8_E4M3", 1},
                                            {FileDType::kF8E8M0, "F8_E8M0", 1},
                                            {FileDType::kI16, "I16", 2},
                                            {FileDType::kU16, "U16", 2},
                                            {FileDType::kF16, "F16", 2},
                                            {FileDType::kBF16, "BF16", 2},
                                            {FileDType::kI32, "I32", 4},
                                            {FileDType::kU32, "U32", 4},
                                            {FileDType::kF32, "F32", 4},
                                            {FileDType::kC64, "C64", 8},
                                            {FileDType::kF64, "F64", 8},
                                            {FileDType::kI64, "I64", 8},
                                            {FileDType::kU64, "U64", 8}}};

// Event by event instead of a document tree: a 100 MB header must not cost gigabytes. The grammar has three levels only.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& origin) : header_(header), origin_(origin) {}

  bool start_object(std::size_t) override {
    if (level_ == Level::kStart) {
      level_ = Level::kRoot;
    } else if (level_ == Level::kRoot) {
      if (name_ == "__metadata__") {
        level_ = Level::kMetadata;
      } else {
        level_ = Level::kEntry;
        header_.tensors.emplace_back().name = name_;
        seen_ = {};
      }
    } else {
      wrong("an object");
    }
    return true;
  }
  bool end_object() override {
    if (level_ == Level::kEntry) {
      if (!seen_.dtype || !seen_.shape || !seen_.offsets)
        fail(!seen_.dtype ? "has no \"dtype\"" : !seen_.shape ? "has no \"shape\"" : "has no \"data_offsets\"");
      level_ = Level::kRoot;
    } else if (level_ == Level::kMetadata) {
      level_ = Level::kRoot;
    } else {
      level_ = Level::kEnd;
    }
    return true;
  }
  bool key(std::string& name) override {
    if (level_ == Level::kRoot) {
      name_ = name;
      bool fresh =
          name == "__metadata__" ? !std::exchange(has_metadata_, true) : header_.index_by_name.emplace(name, header_.tensors.size()).second;
      if (!fresh) fail("is there twice");
    } else if (level_ == Level::kMetadata) {
      field_ = name;
      if (header_.metadata.count(name)) fail(cat("has the key ", shown_name(name), " twice"));
    } else {
      field_ = name;
      bool* flag = name == "dtype" ? &seen_.dtype : name == "shape" ? &seen_.shape : name == "data_offsets" ? &seen_.offsets : nullptr;
      if (!flag) fail(cat("has the unknown field ", shown_name(name), "; the fields are dtype, shape, data_offsets"));
      if (std::exchange(*flag, true)) fail(cat("has the field ", name, " twice"));
    }
    return true;
  }
  bool start_array(std::size_t) override {
    if (level_ != Level::kEntry || field_ == "dtype") wrong("an array");
    level_ = Level::kArray;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    level_ = Level::kEntry;
    auto& entry = header_.tensors.back();
    if (field_ == "shape") {
      entry.shape = numbers_;
    } else {
      if (numbers_.size() != 2) fail(cat("has ", numbers_.size(), " data_offsets, must be 2"));
      entry.begin = numbers_[0];
      entry.end = numbers_[1];
    }
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::kArray) wrong("a number");
    if (value > static_cast<uint64_t>(INT64_MAX)) fail(cat("has the number ", value, " in ", field_, ", too large"));
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) {
      header_.metadata[field_] = value;
    } else if (level_ == Level::kEntry && field_ == "dtype") {
      header_.tensors.back().dtype = dtype_of(value);
    } else {
      wrong("a string");
    }
    return true;
  }
  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_integer(number_integer_t value) override { return wrong(cat("the negative number ", value)); }
  bool number_float(number_float_t, const string_t& text) override { return wrong(cat("the fraction ", text)); }
  bool binary(binary_t&) override { return wrong("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    throw_error(ExitCode::kCheckpoint, origin_, ": header is not valid JSON at byte ", position, ": ", error.what());
  }

 private:
  enum class Level { kStart, kRoot, kMetadata, kEntry, kArray, kEnd };
  struct Seen {
    bool dtype = false, shape = false, offsets = false;
  };

  [[noreturn]] void fail(const std::string& what) {
    throw_error(ExitCode::kCheckpoint, origin_, ": tensor ", shown_name(name_), " ", what);
  }
  bool wrong(const std::string& what) {
    if (level_ == Level::kStart) throw_error(ExitCode::kCheckpoint, origin_, ": header must be a JSON object, not ", what);
    if (level_ == Level::kRoot) fail(cat("must be a JSON object, not ", what));
    fail(cat("has ", what, " in ", shown_name(field_)));
  }
  FileDType dtype_of(const std::string& text) {
    std::vector<std::string> known;
    for (const auto& row : kDTypes) {
      if (text == row.name) return row.dtype;
      known.emplace_back(row.name);
    }
    fail(cat("has the dtype ", shown_name(text), ", which is not read; known: ", join(known)));
  }

  SafetensorsHeader& header_;
  const std::string& origin_;
  Level level_ = Level::kStart;
  Seen seen_;
  bool has_metadata_ = false;
  std::string name_, field_;
  std::vector<int64_t> numbers_;
};

// Spans against shapes, then against each other: they must cover [0, data_bytes) once.
void check_spans(SafetensorsHeader& header, const std::string& origin) {
  for (const auto& t : header.tensors) {
    if (t.end < t.begin || t.end > header.data_bytes)
      throw_error(ExitCode::kCheckpoint, origin, ": tensor ", shown_name(t.name), " has data_offsets [", t.begin, ", ", t.end,
                  "], outside the ", header.data_bytes, " bytes of data in the file",
                  t.end > header.data_bytes ? "; the file is truncated or its header is wrong" : "");
    int64_t bytes = element_bytes(t.dtype);
    bool empty = std::find(t.shape.begin(), t.shape.end(), 0) != t.shape.end(), overflow = false;
    for (int64_t size : t.shape) overflow = !empty && (overflow || __builtin_mul_overflow(bytes, size, &bytes));
    if (empty) bytes = 0;
    if (overflow || bytes != t.end - t.begin)
      throw_error(ExitCode::kCheckpoint, origin, ": tensor ", shown_name(t.name), " ", dtype_name(t.dtype), " ", shape_text(t.shape),
                  " needs ", overflow ? std::string("more than 2^63") : cat(bytes), " bytes but its data_offsets [", t.begin, ", ", t.end,
                  "] hold ", t.end - t.begin);
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  int64_t reached = 0;
  const TensorEntry* before = nullptr;
  for (const auto& t : header.tensors) {
    if (t.begin < reached)
      throw_error(ExitCode::kCheckpoint, origin, ": tensors ", shown_name(before->name), " and ", shown_name(t.name),
                  " overlap in the data section at byte ", t.begin);
    if (t.begin > reached)
      throw_error(ExitCode::kCheckpoint, origin, ": hole in the data section, bytes [", reached, ", ", t.begin, ") before tensor ",
                  shown_name(t.name), " belong to no tensor");
    reached = t.end;
    before = &t;
  }
  if (reached != header.data_bytes)
    throw_error(ExitCode::kCheckpoint, origin, ": ", header.data_bytes - reached, " bytes at the end of the file belong to no tensor");
}

}  // namespace

int64_t element_bytes(FileDType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }
const char* dtype_name(FileDType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
std::string shape_text(const std::vector<int64_t>& shape) { return cat("[", join(shape), "]"); }

const TensorEntry* SafetensorsHeader::find(const std::string& name) const {
  auto it = index_by_name.find(name);
  return it == index_by_name.end() ? nullptr : &tensors[it->second];
}

SafetensorsHeader parse_safetensors_header(std::string_view head, int64_t file_bytes, const std::string& origin) {
  if (file_bytes < 8 || head.size() < 8)
    throw_error(ExitCode::kCheckpoint, origin, ": ", file_bytes,
                " bytes are too few for a safetensors file (8 bytes of header length come first)");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(head[static_cast<size_t>(i)]);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes))
    throw_error(ExitCode::kCheckpoint, origin, ": header length ", length, " is above the limit of ", kMaxSafetensorsHeaderBytes,
                "; not a safetensors file, or a damaged one");
  if (length > static_cast<uint64_t>(file_bytes - 8) || head.size() < 8 + length)
    throw_error(ExitCode::kCheckpoint, origin, ": header length ", length, " is beyond the end of the file (", file_bytes,
                " bytes): truncated");
  std::string_view json = head.substr(8, length);
  if (json.empty() || json[0] != '{')
    throw_error(ExitCode::kCheckpoint, origin, ": header does not start with '{'; not a safetensors file");
  if (json.find('\0') != std::string_view::npos)
    throw_error(ExitCode::kCheckpoint, origin, ": header is not valid JSON: NUL byte at ", json.find('\0'));
  SafetensorsHeader header;
  header.data_begin = static_cast<int64_t>(8 + length);
  header.data_bytes = file_bytes - header.data_begin;
  HeaderReader reader(header, origin);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  check_spans(header, origin);
  for (size_t i = 0; i < header.tensors.size(); ++i) header.index_by_name[header.tensors[i].name] = i;
  return header;
}

SafetensorsHeader read_safetensors_header(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw_error(ExitCode::kCheckpoint, path, ": ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) throw_error(ExitCode::kCheckpoint, path, ": not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_error(ExitCode::kCheckpoint, path, ": cannot be opened: ", std::strerror(errno));
  std::string head(8, '\0');
  file.read(head.data(), 8);
  head.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (head.size() == 8) {
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(head[static_cast<size_t>(i)]);
    // A senseless length is reported by the parser; nothing is allocated for it here.
    if (length <= static_cast<uint64_t>(kMaxSafetensorsHeaderBytes) && length <= static_cast<uint64_t>(info.st_size)) {
      head.resize(8 + length);
      file.read(head.data() + 8, static_cast<std::streamsize>(length));
      head.resize(8 + static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    }
  }
  return parse_safetensors_header(head, info.st_size, path);
}

}  // namespace plait
