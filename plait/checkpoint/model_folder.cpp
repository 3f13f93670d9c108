#include "plait/checkpoint/model_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "plait/base/atomic_file.h"
#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/config/strict_json.h"

namespace plait {

namespace fs = std::filesystem;

namespace {

// "/a/b/" and "/a/b" are one folder; a link is followed, so that its target is swapped and the link stays.
fs::path folder_path(const std::string& folder) {
  std::string text = folder;
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  std::error_code failed;
  fs::path path = fs::absolute(text);
  fs::path real = fs::canonical(path, failed);
  return failed ? path : real;
}

void sync_folder(const fs::path& path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  int failed = ::fsync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  // Some file systems cannot sync folders; a real I/O error is told.
  if (failed != 0 && failed != EINVAL && failed != ENOTSUP) throw_file_error("fsync the folder", path.string(), failed);
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat16: return "float16";
    case DType::kFloat64: return "float64";
  }
  return "float32";
}

void write_all(int descriptor, const std::string& path, const char* data, size_t size) {
  while (size > 0) {
    ssize_t written = ::write(descriptor, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error("write", path, errno);
    data += written;
    size -= static_cast<size_t>(written);
  }
}

}  // namespace

std::string updated_config_json(const std::string& source, const ConfigUpdate& update) {
  auto config = parse_json_object(source, "config.json");
  if (!update.architecture.empty()) config["architectures"] = {update.architecture};
  config["dtype"] = torch_name(update.dtype);
  if (config.contains("torch_dtype")) config["torch_dtype"] = torch_name(update.dtype);  // the key's name before transformers 5
  if (!update.labels.empty()) {
    nlohmann::json names = nlohmann::json::object(), ids = nlohmann::json::object();
    for (size_t id = 0; id < update.labels.size(); ++id) {
      names[std::to_string(id)] = update.labels[id];
      ids[update.labels[id]] = id;
    }
    config["id2label"] = names;
    config["label2id"] = ids;
    config["num_labels"] = update.labels.size();
    config.erase("_num_labels");
  }
  return config.dump(2) + "\n";
}

std::vector<std::string> side_files(const std::string& model_dir) {
  std::vector<std::string> found;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
                           "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "generation_config.json"}) {
    std::string path = model_dir + "/" + name;
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) found.push_back(path);
  }
  return found;
}

void refuse_foreign_folder(const std::string& folder) {
  std::error_code failed;
  if (!fs::exists(folder, failed)) return;
  if (fs::is_directory(folder, failed) && (fs::is_empty(folder, failed) || fs::exists(folder + "/config.json", failed))) return;
  throw_error(ExitCode::kUsage, "cannot write a model to ", folder,
              ": it is there already and is not a model folder; nothing in it was touched");
}

std::string FolderSwap::temporary_path(const std::string& folder, const std::string& suffix) {
  return folder_path(folder).string() + ".tmp-" + suffix;
}

FolderSwap::FolderSwap(const std::string& folder, const std::string& suffix)
    : folder_(folder_path(folder).string()), temporary_(temporary_path(folder, suffix)) {
  std::error_code failed;
  fs::path parent = fs::path(folder_).parent_path();
  fs::create_directories(parent, failed);
  if (failed) throw_file_error("create the folder", parent.string(), failed.value());
  refuse_foreign_folder(folder_);
  std::string leftover = fs::path(folder_).filename().string() + ".tmp-";
  for (const auto& item : fs::directory_iterator(parent, failed)) {
    std::error_code ignored;
    if (item.path().filename().string().starts_with(leftover)) fs::remove_all(item.path(), ignored);
  }
  if (::mkdir(temporary_.c_str(), 0777) != 0) throw_file_error("create the folder", temporary_, errno);
}

FolderSwap::~FolderSwap() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void FolderSwap::commit() {
  sync_folder(temporary_);
  fs::path parent = fs::path(folder_).parent_path();
  std::error_code failed;
  if (!fs::exists(folder_)) {
    if (::rename(temporary_.c_str(), folder_.c_str()) != 0) throw_file_error("rename a finished model folder to", folder_, errno);
    committed_ = true;
    sync_folder(parent);
    return;
  }
  // One atomic exchange; where the file system has none, the old folder steps aside for a moment.
  std::string old = temporary_;
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, folder_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw_file_error("exchange the finished model folder with", folder_, errno);
    old = folder_ + ".old";
    fs::remove_all(old, failed);
    if (::rename(folder_.c_str(), old.c_str()) != 0) throw_file_error("move aside", folder_, errno);
    if (::rename(temporary_.c_str(), folder_.c_str()) != 0) {
      int reason = errno;
      if (::rename(old.c_str(), folder_.c_str()) != 0) log_warning("the previous model is now in ", old);
      throw_file_error("rename a finished model folder to", folder_, reason);
    }
  }
  committed_ = true;
  sync_folder(parent);
  fs::remove_all(old, failed);
  if (failed) log_warning("the previous model folder could not be removed: ", old);
}

void write_durable(const std::string& path, const std::string& content) {
  int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) throw_file_error("create", path, errno);
  try {
    write_all(descriptor, path, content.data(), content.size());
    if (::fsync(descriptor) != 0) throw_file_error("fsync", path, errno);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (::close(descriptor) != 0) throw_file_error("close", path, errno);
}

void copy_durable(const std::string& from, const std::string& to) {
  constexpr int64_t kMaxSideFileBytes = int64_t{1} << 30;
  write_durable(to, read_text_file(from, kMaxSideFileBytes));
}

}  // namespace plait
