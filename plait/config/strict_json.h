// Reads JSON that comes from a model folder: UTF-8, no duplicate key, bounded size and depth. No tensors.
// Every fault is Error(kCheckpoint) that names the origin (a file) and the byte.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace plait {

struct JsonLimits {
  int64_t max_bytes = 16 << 20;
  int max_depth = 32;
};

// The text of one JSON object. `origin` stands first in every message.
nlohmann::json parse_json_object(std::string_view text, const std::string& origin, const JsonLimits& limits = {});

// Whole file as text. Error(kCheckpoint): absent, not a regular file, larger than max_bytes, unreadable.
std::string read_text_file(const std::string& path, int64_t max_bytes = 16 << 20);

// A name as it may be shown to a person: quoted, control characters escaped, cut at 120 bytes.
std::string shown_name(std::string_view name);

}  // namespace plait
