// The messages between a client and the server once both have greeted. A request is answered by one reply, in order; a waiting request
// (get, wait, gather) is answered when its keys or ranks are there, at its time-out, or when the job has failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plait/rendezvous/frame.h"

namespace plait::rendezvous {

constexpr int64_t kProtocolVersion = 1;
constexpr size_t kMostKeyBytes = 4096;
// What of a frame a value may fill; the rest is for its key and the fields' lengths.
constexpr size_t kMostValueBytes = kMostFrameBytes - kMostKeyBytes - 256;

enum class RequestKind : uint8_t {
  kHello = 1,  // hello bytes, client nonce, proof
  kWho,        // before a hello: whose job is this? (answered by kDone with a text)
  kGather,     // until all ranks are here
  kSet,
  kGet,   // waits for the key
  kWait,  // waits for all keys
  kCheck,
  kAdd,
  kCompareSet,
  kDelete,
  kNumKeys,
  kAppend,
  kGoodbye,  // this rank needs the rendezvous no more: its end is no loss
};

struct Request {
  RequestKind kind = RequestKind::kWho;
  std::vector<std::string> keys;
  std::string value;     // kHello: hello bytes; kCompareSet: the wanted value
  std::string expected;  // kHello: client nonce; kCompareSet: the value it must have
  std::string proof;     // kHello
  int64_t number = 0;    // kAdd; kGather: the whole time-out in ms, of which `timeout` is what is left
  std::chrono::milliseconds timeout{0};

  const std::string& key() const { return keys.at(0); }
};

enum class ReplyKind : uint8_t {
  kChallenge = 1,  // number = protocol version, value = server nonce; sent at once after the preamble
  kWelcome,        // value = the server's proof
  kRefused,        // number = exit code, value = message; the connection ends
  kBusy,           // too many connections: come again
  kDone,           // number and value by request
  kTimedOut,       // value = what was missing
  kFailed,         // number = exit code, value = message: the request or the job
};

struct Reply {
  ReplyKind kind = ReplyKind::kDone;
  int64_t number = 0;
  std::string value;
};

// Whole frames. Error(kResource) for one that is too large.
std::string to_frame(const Request& request);
std::string to_frame(const Reply& reply);
// From a frame's payload. Throw BadFrame; a decoded request has the number of keys its kind needs.
Request decode_request(std::string_view payload);
Reply decode_reply(std::string_view payload);

}  // namespace plait::rendezvous
