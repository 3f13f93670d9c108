// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace plait {

// Byte offset of the first sequence that is not valid UTF-8; nothing when all of it is.
std::optional<size_t> first_invalid_utf8(std::string_view bytes);

inline bool is_valid_utf8(std::string_view bytes) { return !first_invalid_utf8(bytes).has_value(); }

}  // namespace plait
