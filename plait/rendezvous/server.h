// Server: the rendezvous of a job, on a thread of its own in the process of rank 0. It listens and serves from its construction until it
// is destroyed, and its destructor gives the other ranks time to finish with it. Never throws once it stands.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "plait/rendezvous/address.h"
#include "plait/rendezvous/service.h"

namespace plait::rendezvous {

class Server {
 public:
  struct Options {
    Service::Options service;
    std::chrono::milliseconds goodbye_time{10000};  // at the end of a good run: until the other ranks have left
    std::chrono::milliseconds failure_time{3000};   // after a failed gathering: until late ranks have heard of it
  };

  Server(Listening listening, Options options);
  // Waits until the other ranks have left, at most goodbye_time. When it is destroyed because of an exception, only until what was to be
  // said is said; after a failed gathering also until the late ranks have heard of it, at most failure_time.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where a client in this process reaches it.
  const SocketAddress& own_address() const { return own_address_; }

 private:
  class Loop;
  SocketAddress own_address_;
  FileDescriptor wake_;
  std::atomic<int> closing_{0};  // 1: wait for the others, 2: in a hurry
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace plait::rendezvous
