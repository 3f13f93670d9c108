#include "plait/rendezvous/frame.h"

#include <gtest/gtest.h>

#include "plait/base/error.h"
#include "plait/rendezvous/message.h"

namespace plait::rendezvous {
namespace {

TEST(Frame, WholeFramesFromAnyPieces) {
  std::string bytes = FieldWriter().text("one").frame() + FieldWriter().frame() + FieldWriter().number(-5).byte(7).frame();
  for (size_t piece : {size_t{1}, size_t{3}, size_t{7}, bytes.size()}) {
    FrameReader reader;
    std::vector<std::string> got;
    for (size_t i = 0; i < bytes.size(); i += piece) {
      reader.feed(std::string_view(bytes).substr(i, piece));
      while (auto payload = reader.next()) got.push_back(*payload);
    }
    ASSERT_EQ(got.size(), 3u) << piece;
    EXPECT_EQ(FieldReader(got[0]).text(3), "one");
    EXPECT_EQ(got[1], "");
    FieldReader last(got[2]);
    EXPECT_EQ(last.number(), -5);
    EXPECT_EQ(last.byte(), 7);
    last.expect_end();
    EXPECT_TRUE(reader.buffered().empty());
  }
}

TEST(Frame, ALengthOverTheLimitIsRefusedWithoutItsBytes) {
  for (uint64_t length : {uint64_t{kMostFrameBytes} + 1, uint64_t{16} << 30, ~uint64_t{0}}) {
    std::string header;
    for (int i = 0; i < 8; ++i) header.push_back(static_cast<char>(length >> (8 * i)));
    FrameReader reader;
    reader.feed(header);
    EXPECT_THROW(reader.next(), BadFrame) << length;
  }
  FrameReader reader;
  reader.feed(FieldWriter().text("a longer one").frame());
  EXPECT_THROW(reader.next(8), BadFrame);
  EXPECT_TRUE(reader.next(64));
}

TEST(Frame, TooLargeAMessageIsNotSent) {
  try {
    FieldWriter().text(std::string(kMostFrameBytes, 'x')).frame();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kResource);
    EXPECT_NE(std::string(e.what()).find("at most 1048576 are allowed"), std::string::npos) << e.what();
  }
}

TEST(Frame, FieldsAreBounded) {
  std::string payload = FieldWriter().text("abc").payload();
  EXPECT_THROW(FieldReader(payload).text(2), BadFrame);
  EXPECT_THROW(FieldReader(payload.substr(0, 9)).text(3), BadFrame);
  EXPECT_THROW(FieldReader("").byte(), BadFrame);
  EXPECT_THROW(FieldReader("1234567").number(), BadFrame);
  FieldReader rest(payload);
  rest.byte();
  EXPECT_THROW(rest.expect_end(), BadFrame);
}

TEST(Message, RequestsAndRepliesReadBack) {
  Request request{RequestKind::kCompareSet, {"key"}, "wanted", "expected", "proof", -3, std::chrono::milliseconds(1500)};
  FrameReader reader;
  reader.feed(to_frame(request));
  Request back = decode_request(*reader.next());
  EXPECT_EQ(back.kind, request.kind);
  EXPECT_EQ(back.keys, request.keys);
  EXPECT_EQ(back.value, "wanted");
  EXPECT_EQ(back.expected, "expected");
  EXPECT_EQ(back.proof, "proof");
  EXPECT_EQ(back.number, -3);
  EXPECT_EQ(back.timeout.count(), 1500);
  reader.feed(to_frame(Reply{ReplyKind::kFailed, 5, "why"}));
  Reply reply = decode_reply(*reader.next());
  EXPECT_EQ(reply.kind, ReplyKind::kFailed);
  EXPECT_EQ(reply.number, 5);
  EXPECT_EQ(reply.value, "why");
}

TEST(Message, NonsenseIsRefused) {
  auto payload_of = [](const Request& request) { return to_frame(request).substr(kFrameHeaderBytes); };
  std::string good = payload_of({RequestKind::kSet, {"key"}, "value", "", "", 0, {}});
  decode_request(good);
  for (size_t length = 0; length < good.size(); ++length) EXPECT_THROW(decode_request(good.substr(0, length)), BadFrame) << length;
  EXPECT_THROW(decode_request(good + "x"), BadFrame);
  for (char kind : {'\0', '\x63', '\xff'}) {
    std::string other = good;
    other[0] = kind;
    EXPECT_THROW(decode_request(other), BadFrame);
  }
  EXPECT_THROW(decode_request(payload_of({RequestKind::kSet, {}, "value", "", "", 0, {}})), BadFrame);
  EXPECT_THROW(decode_request(payload_of({RequestKind::kGet, {"a", "b"}, "", "", "", 0, {}})), BadFrame);
  EXPECT_THROW(to_frame(Request{RequestKind::kGet, {std::string(kMostKeyBytes + 1, 'k')}, "", "", "", 0, {}}), Error);
  EXPECT_THROW(to_frame(Request{RequestKind::kSet, {"k"}, std::string(kMostValueBytes + 1, 'v'), "", "", 0, {}}), Error);
  std::string long_key =
      FieldWriter().byte(static_cast<uint8_t>(RequestKind::kGet)).number(1).text(std::string(kMostKeyBytes + 1, 'k')).payload();
  EXPECT_THROW(decode_request(long_key + std::string(40, '\0')), BadFrame);
  std::string many = FieldWriter().byte(static_cast<uint8_t>(RequestKind::kWait)).number(int64_t{1} << 40).payload();
  EXPECT_THROW(decode_request(many), BadFrame);
}

}  // namespace
}  // namespace plait::rendezvous
