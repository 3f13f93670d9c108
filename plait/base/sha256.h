// SHA-256 (FIPS 180-4), for row orders and cache keys that any other language can redo. Not for secrets kept from timing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plait {

using Sha256Digest = std::array<uint8_t, 32>;

// Feed any number of pieces, then take the digest once.
class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  // Ends the message; the object must not be used afterwards.
  Sha256Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_;
  uint64_t num_bytes_ = 0;
};

Sha256Digest sha256(std::string_view bytes);

// Lower-case hexadecimal, 64 characters.
std::string hex(const Sha256Digest& digest);
std::string sha256_hex(std::string_view bytes);

}  // namespace plait
