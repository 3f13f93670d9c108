#include "plait/data/tokenizer_json.h"

#include <algorithm>

#include "plait/base/text.h"

namespace plait::detail {

namespace {
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxId = int64_t{1} << 24;
}  // namespace

std::string JsonPart::type(const std::vector<std::string>& known) const {
  const std::string name = text("type");
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    refuse("type \"", name, "\" is not supported; known: ", join(known));
  }
  return name;
}

void JsonPart::only(const std::vector<std::string>& known) const {
  if (!value_->is_object()) refuse("must be an object");
  for (const auto& [key, value] : value_->items()) {
    if (key == "type" || std::find(known.begin(), known.end(), key) != known.end()) continue;
    refuse("key \"", key, "\" is not supported; known: ", join(known));
  }
}

bool JsonPart::has(const char* key) const {
  if (!value_->is_object()) refuse("must be an object");
  auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonPart JsonPart::at(const char* key) const {
  if (!value_->is_object()) refuse("must be an object");
  auto found = value_->find(key);
  if (found == value_->end()) refuse("key \"", key, "\" is missing");
  return JsonPart(*found, path_.empty() ? std::string(key) : cat(path_, ".", key), *source_);
}

std::vector<JsonPart> JsonPart::items(const char* key) const {
  const JsonPart list = at(key);
  if (!list.value().is_array()) list.refuse("must be an array");
  std::vector<JsonPart> parts;
  parts.reserve(list.value().size());
  size_t index = 0;
  for (const auto& item : list.value()) parts.emplace_back(item, cat(list.path_, "[", index++, "]"), *source_);
  return parts;
}

std::string JsonPart::text(const char* key) const { return at(key).as_text(); }

std::string JsonPart::text_or(const char* key, const std::string& absent) const { return has(key) ? text(key) : absent; }

bool JsonPart::flag(const char* key) const {
  const JsonPart part = at(key);
  if (!part.value().is_boolean()) part.refuse("must be true or false");
  return part.value().get<bool>();
}

bool JsonPart::flag_or(const char* key, bool absent) const { return has(key) ? flag(key) : absent; }

int64_t JsonPart::integer(const char* key, int64_t smallest, int64_t largest) const {
  const JsonPart part = at(key);
  if (!part.value().is_number_integer() || (part.value().is_number_unsigned() && part.value().get<uint64_t>() > INT64_MAX)) {
    part.refuse("must be a whole number");
  }
  const auto number = part.value().get<int64_t>();
  if (number < smallest || number > largest) part.refuse(number, " is not in ", smallest, " ... ", largest);
  return number;
}

std::string JsonPart::as_text() const {
  if (!value_->is_string()) refuse("must be a string");
  return value_->get<std::string>();
}

int32_t JsonPart::as_id() const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() >= static_cast<uint64_t>(kMaxId)) {
    refuse("must be a token id, a whole number in 0 ... ", kMaxId - 1);
  }
  return value_->get<int32_t>();
}

nlohmann::json parse_json_object(std::string_view json, const std::string& source) {
  nlohmann::json parsed;
  auto bounded = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kMaxDepth) throw_error(ExitCode::kCheckpoint, source, ": nested deeper than ", kMaxDepth, " levels");
    return true;
  };
  try {
    parsed = nlohmann::json::parse(json.begin(), json.end(), bounded);
  } catch (const nlohmann::json::exception& failure) {
    throw_error(ExitCode::kCheckpoint, source, ": not valid JSON: ", failure.what());
  }
  if (!parsed.is_object()) throw_error(ExitCode::kCheckpoint, source, ": must hold one JSON object");
  return parsed;
}

}  // namespace plait::detail
