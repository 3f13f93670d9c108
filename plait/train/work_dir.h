// WorkDir: the folder a run writes into. One run at a time: a lock file is held from construction to destruction.
// Errors: Error(kUsage) when it cannot be made or written, Error(kBusy) when another run holds it (its process id is named).
#pragma once

#include <string>

namespace plait {

class WorkDir {
 public:
  // Creates PATH, PATH/logs and takes the lock. A forked child shares its parent's lock.
  explicit WorkDir(const std::string& path);
  ~WorkDir();
  WorkDir(const WorkDir&) = delete;
  WorkDir& operator=(const WorkDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  int lock_fd_ = -1;
};

}  // namespace plait
