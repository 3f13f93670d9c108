// AtomicFile: a file that appears under its name whole or not at all. Bytes go to a temporary name in the same folder; commit()
// fsyncs, renames over the final name and fsyncs the folder. Without commit() nothing is left behind.
// One thread at a time. Errors: no space or descriptors Error(kResource), absent or unwritable folder Error(kUsage).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plait {

class AtomicFile {
 public:
  // Creates the temporary file beside `path` (mode 0666 less umask). The folder must exist.
  explicit AtomicFile(std::string path);
  // Removes the temporary when commit() was not reached.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends.
  void write(const void* data, size_t num_bytes);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Overwrites bytes from `offset` on; the append position stays.
  void write_at(uint64_t offset, const void* data, size_t num_bytes);

  // The file is durable under its name when this returns.
  void commit();

  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_path_; }

 private:
  [[noreturn]] void fail(const char* action, int error_number) const;

  std::string path_, temporary_path_;
  int descriptor_ = -1;
};

// The whole content in one call.
void write_file_atomically(const std::string& path, std::string_view content);

// "cannot ACTION PATH: reason" with the code that errno asks for: ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EIO, EFBIG
// kResource, else kUsage.
[[noreturn]] void throw_file_error(const char* action, const std::string& path, int error_number);

}  // namespace plait
