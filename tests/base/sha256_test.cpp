#include "plait/base/sha256.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(Sha256, KnownVectors) {  // FIPS 180-4 examples and NIST's long messages
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnySizeGiveTheSameDigest) {
  std::string message;
  for (int i = 0; i < 300; ++i) message.push_back(static_cast<char>(i * 7));
  for (size_t length = 0; length <= message.size(); ++length) {
    std::string part = message.substr(0, length);
    for (size_t piece : {size_t{1}, size_t{3}, size_t{63}, size_t{64}, size_t{65}}) {
      Sha256 hash;
      for (size_t at = 0; at < part.size(); at += piece) hash.update(std::string_view(part).substr(at, piece));
      ASSERT_EQ(hex(hash.finish()), sha256_hex(part)) << length << " " << piece;
    }
  }
}

}  // namespace
}  // namespace plait
