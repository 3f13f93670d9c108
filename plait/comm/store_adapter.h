// RendezvousStore: a c10d Store over plait's own rendezvous, for Gloo and NCCL alike. Holds the client and, on rank 0, the server, which
// therefore lives until the last process group of this rank is gone (and then until the other ranks have left).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "plait/rendezvous/client.h"
#include "plait/rendezvous/server.h"

namespace plait::detail {

class RendezvousStore : public c10d::Store {
 public:
  // server: null where this process does not serve. timeout: of get() and wait() without one of their own.
  RendezvousStore(std::shared_ptr<rendezvous::Server> server, std::shared_ptr<rendezvous::Client> client,
                  std::chrono::milliseconds timeout);

  using Bytes = std::vector<uint8_t>;
  using Millis = std::chrono::milliseconds;
  using c10d::Store::compareSet;
  using c10d::Store::set;

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const Bytes& value) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& wanted) override;
  Bytes get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const Millis& timeout) override;
  void append(const std::string& key, const Bytes& value) override;
  bool hasExtendedApi() const override { return true; }  // multiGet and multiSet are the base's loops

 private:
  std::shared_ptr<rendezvous::Server> server_;  // destroyed last: it waits for the other ranks' goodbyes, not for our own
  std::shared_ptr<rendezvous::Client> client_;
};

}  // namespace plait::detail
