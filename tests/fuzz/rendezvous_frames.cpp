// Fuzz entry of the rendezvous: everything that reads a stranger's bytes, without sockets. The first byte chooses what is fed: the server
// with connections of strangers and of a rank that has been let in, or the decoders alone.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "plait/base/error.h"
#include "plait/rendezvous/service.h"

namespace {

using namespace plait::rendezvous;  // a program of its own
using plait::Error;

std::string_view cut(std::string_view& bytes, size_t count) {
  std::string_view piece = bytes.substr(0, count);
  bytes.remove_prefix(piece.size());
  return piece;
}

// Reading replies and hellos as a client and server do.
void feed_decoders(std::string_view bytes) {
  try {
    decode_hello(bytes);
  } catch (const BadFrame&) {}
  try {
    decode_request(bytes);
  } catch (const BadFrame&) {}
  try {
    decode_reply(bytes);
  } catch (const BadFrame&) {}
  FrameReader reader;
  reader.feed(bytes);
  try {
    while (reader.next()) {}
  } catch (const BadFrame&) {}
  size_t half = bytes.size() / 2;
  first_difference(comparable_settings(bytes.substr(0, half)), comparable_settings(bytes.substr(half)));
}

class Served {
 public:
  Served() : service_(options(), now_) {}

  // A rank without a secret to prove, let in with a good greeting.
  void let_in(Service::Id id, int64_t rank) {
    service_.open(id, "peer", "127.0.0.1", now_);
    Hello hello = options().self;
    hello.rank = rank;
    hello.instance = std::string(16, static_cast<char>('a' + rank));
    std::string greeting(kPreamble);
    greeting += to_frame(Request{RequestKind::kHello, {}, encode(hello), std::string(kNonceBytes, 'n'), {}, 0, {}});
    service_.receive(id, greeting, now_);
    drain(id);
  }

  void open(Service::Id id) { service_.open(id, "peer", "10.0.0.1", now_); }

  // In pieces of any size, with time going by.
  void feed(Service::Id id, std::string_view bytes) {
    while (!bytes.empty()) {
      size_t size = 1 + static_cast<uint8_t>(bytes[0]) * 4;
      std::string_view piece = cut(bytes, size);
      if (service_.wants_input(id)) service_.receive(id, piece, now_);
      now_ += std::chrono::milliseconds(size);
      service_.tick(now_);
      drain(id);
    }
  }

  void end() {
    for (Service::Id id = 0; id < 4; ++id) service_.close(id);
    service_.tick(now_);
  }

 private:
  static Service::Options options() {
    Service::Options options;
    options.self.world_size = 3;
    options.self.host = "host";
    options.address = "127.0.0.1:1";
    return options;
  }

  void drain(Service::Id id) {
    while (!service_.output(id).empty()) service_.sent(id, service_.output(id).size(), now_);
  }

  Service::Clock::time_point now_{};
  Service service_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) return 0;
  uint8_t what = static_cast<uint8_t>(cut(bytes, 1)[0]);
  if (what % 4 == 0) {
    feed_decoders(bytes);
    return 0;
  }
  Served served;
  served.let_in(0, 0);
  served.let_in(1, 1);
  if (what % 4 == 1) served.let_in(2, 2);
  else served.open(2);
  // Frames round the bytes, so that a fuzzer without a guide gets beyond their lengths; or as they are.
  if (what % 4 == 3) {
    served.feed(2, bytes);
  } else {
    if (what % 4 == 2) served.feed(2, kPreamble);
    while (!bytes.empty()) {
      uint8_t length = static_cast<uint8_t>(cut(bytes, 1)[0]);
      std::string_view payload = cut(bytes, length);
      std::string frame(8, '\0');
      frame[0] = static_cast<char>(payload.size());
      served.feed(2, frame + std::string(payload));
    }
  }
  served.end();
  return 0;
}
