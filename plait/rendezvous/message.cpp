#include "plait/rendezvous/message.h"

#include <algorithm>

#include "plait/base/error.h"

namespace plait::rendezvous {

namespace {

constexpr int64_t kMostKeys = 1 << 16;
constexpr int64_t kMostTimeoutMs = int64_t{1000} * 3600 * 24 * 365;

bool key_count_fits(RequestKind kind, size_t count) {
  switch (kind) {
    case RequestKind::kSet:
    case RequestKind::kGet:
    case RequestKind::kAdd:
    case RequestKind::kCompareSet:
    case RequestKind::kDelete:
    case RequestKind::kAppend: return count == 1;
    case RequestKind::kWait:
    case RequestKind::kCheck: return true;
    default: return count == 0;
  }
}

}  // namespace

std::string to_frame(const Request& request) {
  for (const auto& key : request.keys) {
    if (key.size() > kMostKeyBytes)
      throw_error(ExitCode::kResource, "a key of ", key.size(), " bytes for the rendezvous; at most ", kMostKeyBytes, " are allowed");
  }
  if (std::max(request.value.size(), request.expected.size()) > kMostValueBytes)
    throw_error(ExitCode::kResource, "a value of ", request.value.size(), " bytes for the rendezvous; at most ", kMostValueBytes,
                " are allowed");
  FieldWriter fields;
  fields.byte(static_cast<uint8_t>(request.kind)).number(static_cast<int64_t>(request.keys.size()));
  for (const auto& key : request.keys) fields.text(key);
  fields.text(request.value).text(request.expected).text(request.proof).number(request.number).number(request.timeout.count());
  return fields.frame();
}

Request decode_request(std::string_view payload) {
  FieldReader fields(payload);
  Request request;
  uint8_t kind = fields.byte();
  if (kind < static_cast<uint8_t>(RequestKind::kHello) || kind > static_cast<uint8_t>(RequestKind::kGoodbye))
    throw BadFrame(cat("request of unknown kind ", int{kind}));
  request.kind = static_cast<RequestKind>(kind);
  int64_t num_keys = fields.number();
  if (num_keys < 0 || num_keys > kMostKeys || static_cast<size_t>(num_keys) > fields.num_left())
    throw BadFrame(cat("a request with ", num_keys, " keys"));
  for (int64_t i = 0; i < num_keys; ++i) request.keys.push_back(fields.text(kMostKeyBytes));
  if (!key_count_fits(request.kind, request.keys.size())) throw BadFrame(cat("a request of kind ", int{kind}, " with ", num_keys, " keys"));
  request.value = fields.text(kMostValueBytes);
  request.expected = fields.text(kMostValueBytes);
  request.proof = fields.text(64);
  request.number = fields.number();
  request.timeout = std::chrono::milliseconds(std::clamp<int64_t>(fields.number(), 0, kMostTimeoutMs));
  fields.expect_end();
  return request;
}

std::string to_frame(const Reply& reply) {
  FieldWriter fields;
  fields.byte(static_cast<uint8_t>(reply.kind)).number(reply.number).text(reply.value);
  return fields.frame();
}

Reply decode_reply(std::string_view payload) {
  FieldReader fields(payload);
  Reply reply;
  uint8_t kind = fields.byte();
  if (kind < static_cast<uint8_t>(ReplyKind::kChallenge) || kind > static_cast<uint8_t>(ReplyKind::kFailed))
    throw BadFrame(cat("reply of unknown kind ", int{kind}));
  reply.kind = static_cast<ReplyKind>(kind);
  reply.number = fields.number();
  reply.value = fields.text(kMostFrameBytes);
  fields.expect_end();
  return reply;
}

}  // namespace plait::rendezvous
