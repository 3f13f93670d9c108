// Safetensors files mapped read-only. Opening checks the whole header against the file's size, so that every span handed out lies
// inside the mapping. Views stay valid as long as the object that gave them. Any thread may read; no rank rule.
// Errors: Error(kCheckpoint) naming file and tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "plait/config/safetensors_header.h"

namespace plait {

// A tensor inside a mapped file. `data` may be unaligned.
struct TensorView {
  FileDType dtype = FileDType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  int64_t num_bytes = 0;
  std::string file;  // for messages
  int64_t numel() const { return num_bytes / element_bytes(dtype); }
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  std::optional<TensorView> find(const std::string& name) const;

 private:
  std::string path_;
  SafetensorsHeader header_;
  const std::byte* mapping_ = nullptr;
  int64_t mapped_bytes_ = 0;
};

// The weights of a model folder: model.safetensors, or the shards of model.safetensors.index.json (the single file wins when both
// are there, as in Hugging Face). Opening fails when a shard is missing, or index and shards disagree; nothing but safetensors is read.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::string& folder);
  // One file on its own, for instance a head.
  static SafetensorsFolder of_file(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& names() const { return names_; }  // sorted
  bool contains(const std::string& name) const { return file_of_.count(name) != 0; }
  std::optional<TensorView> find(const std::string& name) const;

 private:
  SafetensorsFolder() = default;
  void add_file(const std::string& path);
  void open_shards(const std::string& folder);
  void sort_names();

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, size_t> file_of_;
  std::vector<std::string> names_;
};

// Tells the kernel that the pages of this view are not needed by this process any more (they stay in the page cache), so that a
// load never holds more than what it is converting.
void release_pages(const TensorView& view);

}  // namespace plait
