#include "plait/base/hmac.h"

#include <algorithm>

namespace plait {

namespace {

constexpr size_t kBlockBytes = 64;

std::string_view view_of(const Sha256Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

}  // namespace

Sha256Digest hmac_sha256(std::string_view key, std::string_view message) {
  char block[kBlockBytes] = {};
  if (key.size() > kBlockBytes) {
    Sha256Digest short_key = sha256(key);
    std::copy(short_key.begin(), short_key.end(), reinterpret_cast<uint8_t*>(block));
  } else {
    std::copy(key.begin(), key.end(), block);
  }
  for (char& byte : block) byte = static_cast<char>(byte ^ 0x36);
  Sha256 inner;
  inner.update({block, kBlockBytes});
  inner.update(message);
  for (char& byte : block) byte = static_cast<char>(byte ^ 0x36 ^ 0x5c);
  Sha256 outer;
  outer.update({block, kBlockBytes});
  Sha256Digest inner_digest = inner.finish();
  outer.update(view_of(inner_digest));
  return outer.finish();
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace plait
