#include "plait/checkpoint/safetensors_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"
#include "plait/config/pickled_weights.h"
#include "plait/config/strict_json.h"

namespace plait {

namespace {

constexpr int64_t kMaxIndexBytes = 64 << 20;
constexpr size_t kNamesShown = 10;

// "a, b, c and 7 more"
std::string shown_list(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) shown.push_back(shown_name(names[i]));
  return names.size() > kNamesShown ? cat(join(shown), " and ", names.size() - kNamesShown, " more") : join(shown);
}

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Says what the folder has instead, since that is what the reader can act on.
[[noreturn]] void no_weights(const std::string& folder) {
  std::string other;
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    std::string extension = item.path().extension().string();
    if (extension == ".safetensors" || extension == ".gguf" || extension == ".h5" || extension == ".msgpack")
      other = item.path().filename().string();
  }
  std::string what = cat("model folder ", folder, " holds no model.safetensors and no model.safetensors.index.json");
  std::string advice = pickled_weights_advice(folder);
  if (!advice.empty()) throw_error(ExitCode::kCheckpoint, what, ", ", advice);
  if (!other.empty())
    throw_error(ExitCode::kCheckpoint, what, "; it has ", other, ". Weights are read from safetensors files of those names only");
  throw_error(ExitCode::kCheckpoint, what);
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    bool exhausted = errno == EMFILE || errno == ENFILE;
    throw_error(exhausted ? ExitCode::kResource : ExitCode::kCheckpoint, path_,
                ": cannot be opened: ", static_cast<const char*>(std::strerror(errno)));
  }
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } closer{descriptor};
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) throw_error(ExitCode::kCheckpoint, path_, ": not a regular file");
  if (info.st_size < 8) parse_safetensors_header({}, info.st_size, path_);  // throws
  void* mapping = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (mapping == MAP_FAILED)
    throw_error(ExitCode::kResource, path_, ": ", static_cast<int64_t>(info.st_size),
                " bytes cannot be mapped: ", static_cast<const char*>(std::strerror(errno)));
  mapping_ = static_cast<const std::byte*>(mapping);
  mapped_bytes_ = info.st_size;
  try {
    header_ = parse_safetensors_header({reinterpret_cast<const char*>(mapping_), static_cast<size_t>(mapped_bytes_)}, mapped_bytes_, path_);
  } catch (...) {
    ::munmap(mapping, static_cast<size_t>(mapped_bytes_));
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { ::munmap(const_cast<std::byte*>(mapping_), static_cast<size_t>(mapped_bytes_)); }

std::optional<TensorView> SafetensorsFile::find(const std::string& name) const {
  const TensorEntry* entry = header_.find(name);
  if (!entry) return std::nullopt;
  return TensorView{entry->dtype, entry->shape, mapping_ + header_.data_begin + entry->begin, entry->end - entry->begin, path_};
}

SafetensorsFolder::SafetensorsFolder(const std::string& folder) : path_(folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    throw_error(ExitCode::kCheckpoint, "model folder ", folder,
                " is not there: a folder with config.json, model.safetensors and tokenizer.json is needed");
  if (is_file(folder + "/model.safetensors")) {
    add_file(folder + "/model.safetensors");
  } else if (is_file(folder + "/model.safetensors.index.json")) {
    open_shards(folder);
  } else {
    no_weights(folder);
  }
  sort_names();
}

SafetensorsFolder SafetensorsFolder::of_file(const std::string& path) {
  SafetensorsFolder folder;
  folder.path_ = path;
  folder.add_file(path);
  folder.sort_names();
  return folder;
}

void SafetensorsFolder::add_file(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const auto& tensor : files_.back()->header().tensors) {
    auto [it, fresh] = file_of_.emplace(tensor.name, files_.size() - 1);
    if (!fresh) throw_error(ExitCode::kCheckpoint, path, ": tensor ", shown_name(tensor.name), " is also in ", files_[it->second]->path());
  }
}

void SafetensorsFolder::open_shards(const std::string& folder) {
  std::string index_path = folder + "/model.safetensors.index.json";
  auto index = parse_json_object(read_text_file(index_path, kMaxIndexBytes), index_path, {kMaxIndexBytes, 8});
  auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    throw_error(ExitCode::kCheckpoint, index_path, ": has no object \"weight_map\" of tensor: file");
  std::map<std::string, std::vector<std::string>> tensors_of;
  for (const auto& [tensor, file] : map->items()) {
    std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos || name[0] == '.')
      throw_error(ExitCode::kCheckpoint, index_path, ": the file of tensor ", shown_name(tensor),
                  " must be the plain name of a file in the folder, not ", file.is_string() ? shown_name(name) : file.type_name());
    tensors_of[name].push_back(tensor);
  }
  for (const auto& [name, tensors] : tensors_of) {
    std::string path = folder + "/" + name;
    if (!is_file(path))
      throw_error(ExitCode::kCheckpoint, path, " is missing; ", index_path, " says that ", tensors.size(),
                  " tensors are in it, for instance ", shown_name(tensors[0]));
    add_file(path);
    std::vector<std::string> absent, unlisted;
    for (const auto& tensor : tensors)
      if (!files_.back()->header().find(tensor)) absent.push_back(tensor);
    for (const auto& entry : files_.back()->header().tensors) {
      auto listed = map->find(entry.name);
      if (listed == map->end() || *listed != name) unlisted.push_back(entry.name);
    }
    if (!absent.empty())
      throw_error(ExitCode::kCheckpoint, path, ": ", absent.size(), " tensors that ", index_path,
                  " places here are absent: ", shown_list(absent));
    if (!unlisted.empty())
      throw_error(ExitCode::kCheckpoint, path, ": holds ", unlisted.size(), " tensors that ", index_path,
                  " does not place here: ", shown_list(unlisted));
  }
}

void SafetensorsFolder::sort_names() {
  for (const auto& [name, file] : file_of_) names_.push_back(name);
  std::sort(names_.begin(), names_.end());
}

std::optional<TensorView> SafetensorsFolder::find(const std::string& name) const {
  auto it = file_of_.find(name);
  if (it == file_of_.end()) return std::nullopt;
  return files_[it->second]->find(name);
}

void release_pages(const TensorView& view) {
  auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  uintptr_t begin = (reinterpret_cast<uintptr_t>(view.data) + page - 1) / page * page;
  uintptr_t end = (reinterpret_cast<uintptr_t>(view.data) + static_cast<uintptr_t>(view.num_bytes)) / page * page;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace plait
