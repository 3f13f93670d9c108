// HMAC-SHA256 (RFC 2104), for proofs that a peer knows a secret, and the comparison that such proofs need.
#pragma once

#include <string_view>

#include "plait/base/sha256.h"

namespace plait {

Sha256Digest hmac_sha256(std::string_view key, std::string_view message);

// Takes the same time wherever the two differ; only their lengths show.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace plait
