// The parts of a model folder that are not weights, and the act of putting a new folder in the place of an old one.
#pragma once

#include <string>
#include <vector>

#include "plait/config/config.h"

namespace plait {

// What training changes in config.json.
struct ConfigUpdate {
  std::string architecture;         // "BertForSequenceClassification"; empty: as it was
  DType dtype = DType::kFloat32;    // of the exported weights
  std::vector<std::string> labels;  // class names in id order: id2label, label2id, num_labels; empty: as they were
};
// `source`: text of the config.json that training started from. All other fields stay.
std::string updated_config_json(const std::string& source, const ConfigUpdate& update);

// Tokenizer and generation files of a model folder that are there, as full paths.
std::vector<std::string> side_files(const std::string& model_dir);

// Error(kUsage) when something stands at `folder` that is not a model folder and not empty: it would not be replaced.
void refuse_foreign_folder(const std::string& folder);

// A folder that appears under its name whole or not at all; one process uses it. What stood there before stays until commit().
// Only one writer of a folder at a time (the trainer holds the lock of its work_dir): left-overs of a killed one are removed.
// Errors: as throw_file_error; Error(kUsage) when the name is taken by something that is not a model folder.
class FolderSwap {
 public:
  // `suffix` makes the temporary name FOLDER.tmp-SUFFIX. Creates it, with the parents of FOLDER.
  FolderSwap(const std::string& folder, const std::string& suffix);
  ~FolderSwap();  // without commit(): removes the temporary folder
  FolderSwap(const FolderSwap&) = delete;
  FolderSwap& operator=(const FolderSwap&) = delete;

  static std::string temporary_path(const std::string& folder, const std::string& suffix);
  const std::string& path() const { return temporary_; }
  void commit();

 private:
  std::string folder_, temporary_;
  bool committed_ = false;
};

// Writes and fsyncs one file of an unfinished folder.
void write_durable(const std::string& path, const std::string& content);
void copy_durable(const std::string& from, const std::string& to);

}  // namespace plait
