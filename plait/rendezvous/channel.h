// Channel: one connection of a client, from connecting to its replies. One thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "plait/base/error.h"
#include "plait/base/file_descriptor.h"
#include "plait/rendezvous/address.h"
#include "plait/rendezvous/hello.h"
#include "plait/rendezvous/message.h"

namespace plait::rendezvous {

// The Error that a reply of kind kRefused or kFailed carries.
Error error_of(const Reply& reply);

class Channel {
 public:
  using Clock = std::chrono::steady_clock;

  // Why there is no connection (yet). All but kWrongProgram may be different at the next attempt.
  struct Trouble {
    enum class Kind { kUnreachable, kSilent, kClosed, kBusy, kWrongProgram } kind;
    std::string text;
  };

  // Connects and waits for the server's challenge until `deadline`.
  static std::variant<std::unique_ptr<Channel>, Trouble> open(const SocketAddress& address, Clock::time_point deadline);

  // Answers the challenge and checks the server's proof. Error(kRendezvous, kAuth, ...) when refused; a Trouble when the connection
  // broke on the way.
  std::optional<Trouble> greet(const Hello& hello, const std::string& secret, const std::string& address, Clock::time_point deadline);

  // Sends a request's frame and waits for the reply. None when the connection broke or nothing came until the deadline.
  std::optional<Reply> call(std::string_view frame, Clock::time_point deadline);
  void send(std::string_view frame);

  std::string local_address() const { return plait::rendezvous::local_address(fd_.get()).host(); }

 private:
  explicit Channel(FileDescriptor fd) : fd_(std::move(fd)) {}
  bool send_all(std::string_view bytes, Clock::time_point deadline);
  std::optional<Reply> receive(Clock::time_point deadline);

  FileDescriptor fd_;
  FrameReader reader_;
  std::string server_nonce_;
  bool closed_ = false;  // the peer ended the connection
};

}  // namespace plait::rendezvous
