// Client: one rank's way to the rendezvous. Connecting waits for rank 0's server and proves on both sides that the secret is known; gather()
// waits for all ranks; then come keys and values. Any thread may call any operation: each takes a connection of its own from a small
// pool, so that a waiting one never holds up the others. Everything that fails throws Error: kRendezvous (refused, time-out), kAuth,
// kPeerLost (the server or a rank is gone).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plait/rendezvous/address.h"
#include "plait/rendezvous/hello.h"
#include "plait/rendezvous/message.h"

namespace plait::rendezvous {

class Channel;

struct ClientOptions {
  Hello self;
  std::string secret;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  std::vector<SocketAddress> addresses;       // where to connect; empty = what master_addr resolves to, asked again at every attempt
  std::chrono::milliseconds timeout{600000};  // until all ranks are here
  std::chrono::milliseconds line_time{10000};
  std::function<void(const std::string&)> say;  // lines for people while the server cannot be reached; may be empty
};

class Client {
 public:
  // Connects and greets; waits for a server as long as the time-out allows.
  explicit Client(ClientOptions options);
  // Says goodbye, unless an exception is under way: then this rank's end is a loss to those who wait for it.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Waits until all ranks are here, within what is left of the time-out.
  void gather();

  using Millis = std::chrono::milliseconds;
  void set(const std::string& key, const std::string& value);
  void append(const std::string& key, const std::string& value);
  std::string get(const std::string& key, Millis timeout);  // waits for the key
  void wait(const std::vector<std::string>& keys, Millis timeout);
  bool check(const std::vector<std::string>& keys);
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& wanted);
  bool remove(const std::string& key);
  int64_t num_keys();

  // Numeric address of this machine which leads to the server, and, after gather(), one of the server's machine that ranks on other
  // machines have reached ("" when all came over loopback).
  std::string local_address() const { return local_address_; }
  std::string outside_address() const { return outside_address_; }

 private:
  Reply call(const Request& request);
  std::unique_ptr<Channel> borrow();
  std::string address() const { return address_text(options_.master_addr, options_.master_port); }

  ClientOptions options_;
  std::chrono::steady_clock::time_point deadline_;
  std::string local_address_, outside_address_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Channel>> idle_;
  const Channel* first_ = nullptr;  // the one whose end is the rank's
};

// Asks what listens at an address: "port 29500 serves job A of 8 ranks since ...", or "" when it is no plait or says nothing in time.
std::string whose_job(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace plait::rendezvous
