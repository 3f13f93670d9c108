// EventFile: scalars over steps in TensorBoard's own file format, so that `tensorboard --logdir DIR` shows a run while it goes on.
// A file is a chain of TFRecords (length, masked CRC-32C of it, data, masked CRC-32C of it), each an Event message of protocol buffers:
// 1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary { 1 value { 1 tag (string), 2 simple_value (float) } }.
// One thread, one rank. Each call is on disk's way when it returns: a killed run leaves whole records.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait {

class EventFile {
 public:
  // Creates the folder and FOLDER/events.out.tfevents.SECONDS.HOST.PID. Error(kUsage) where it cannot, Error(kResource) when the disk is full.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // One event with all of them; tags as TensorBoard groups them: "train/loss".
  void write(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  const std::string& path() const { return path_; }

 private:
  void write_record(const std::string& event);

  std::string path_;
  std::FILE* file_;
};

// CRC-32C (Castagnoli, RFC 3720 B.4).
uint32_t crc32c(std::string_view bytes);

}  // namespace plait
