// StatusPage: memory with one RankStatus that a rank and its launcher share through a descriptor (memfd). Movable; unmapped and closed once.
#pragma once

#include "plait/base/file_descriptor.h"
#include "plait/base/rank_status.h"

namespace plait {

class StatusPage {
 public:
  StatusPage() = default;            // none: status() is null
  static StatusPage create();        // a fresh page; throws Error(kResource)
  static StatusPage attach(int fd);  // the page behind an inherited descriptor, which it owns; none when `fd` is something else
  StatusPage(StatusPage&& other) noexcept;
  StatusPage& operator=(StatusPage&& other) noexcept;
  ~StatusPage();

  RankStatus* status() const { return status_; }
  int fd() const { return fd_.get(); }

 private:
  void unmap();

  FileDescriptor fd_;
  RankStatus* status_ = nullptr;
};

}  // namespace plait
