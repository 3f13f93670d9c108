// Gloo backends (CPU tensors over TCP) behind a factory: the only file pair that knows ProcessGroupGloo.
// Rank rule: all members make their groups in the same order over the same store keys.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace plait::detail {

class GlooFactory {
 public:
  // address: numeric address of this machine that the peers reach ("127.0.0.1" keeps everything on loopback). The environment variable
  // GLOO_SOCKET_IFNAME, when set, names the interface instead, or several with commas between, which the operations then take in turns; equally
  // many on all ranks. Network devices are made once and shared by all groups.
  explicit GlooFactory(const std::string& address);
  ~GlooFactory();

  // Connects to all members through `store`; collective. Throws whatever Gloo throws.
  c10::intrusive_ptr<c10d::Backend> make(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout);

 private:
  struct Devices;
  std::unique_ptr<Devices> devices_;
};

}  // namespace plait::detail
