// Checked reading of a tokenizer.json. A JsonPart knows where in which file it stands, so that every refusal says so.
// Internal to plait/data: the JSON library stays out of the public headers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "plait/base/error.h"

namespace plait::detail {

class JsonPart {
 public:
  JsonPart(const nlohmann::json& value, std::string path, const std::string& source)
      : value_(&value), path_(std::move(path)), source_(&source) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& source() const { return *source_; }
  bool is_null() const { return value_->is_null(); }

  // Throws Error(kCheckpoint): "<file>: <place in the file>: <reason>".
  template <class... Pieces>
  [[noreturn]] void refuse(const Pieces&... reason) const {
    throw_error(ExitCode::kCheckpoint, *source_, ": ", path_.empty() ? std::string("the top level") : path_, ": ", reason...);
  }

  // The value of "type", which must be one of `known`.
  std::string type(const std::vector<std::string>& known) const;

  // Refuses keys that are not in `known` ("type" is always): what plait does not know it must not ignore.
  void only(const std::vector<std::string>& known) const;

  bool has(const char* key) const;  // present and not null
  JsonPart at(const char* key) const;
  std::vector<JsonPart> items(const char* key) const;  // of an array
  std::string text(const char* key) const;
  std::string text_or(const char* key, const std::string& absent) const;
  bool flag(const char* key) const;
  bool flag_or(const char* key, bool absent) const;
  int64_t integer(const char* key, int64_t smallest, int64_t largest) const;

  std::string as_text() const;
  int32_t as_id() const;  // 0 <= id < 2^24

 private:
  const nlohmann::json* value_;
  std::string path_;
  const std::string* source_;
};

// Throws Error(kCheckpoint) on text that is not one JSON object, or is nested deeper than 64.
nlohmann::json parse_json_object(std::string_view json, const std::string& source);

}  // namespace plait::detail
