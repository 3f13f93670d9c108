// Typed access to one JSON object of a model's config.json. Every message names file, key, value and rule; all are Error(kCheckpoint).
// An absent key gives the fallback. null counts as absent only where a function says so: Hugging Face refuses it elsewhere too.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plait/base/error.h"

namespace plait::detail {

class ShapeFields {
 public:
  ShapeFields(const nlohmann::json& object, std::string origin) : object_(object), origin_(std::move(origin)) {}

  [[noreturn]] void fail(const std::string& key, const std::string& rule) const {
    auto it = object_.find(key);
    std::string value = it == object_.end() ? std::string("not given") : it->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (value.size() > 200) value = value.substr(0, 200) + "...";
    throw_error(ExitCode::kCheckpoint, origin_, ": ", key, " is ", value, ": ", rule);
  }
  bool given(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  bool present(const std::string& key) const { return object_.contains(key); }
  const nlohmann::json& at(const std::string& key) const { return object_.at(key); }
  const std::string& origin() const { return origin_; }

  int64_t integer(const std::string& key, int64_t fallback, int64_t min, int64_t max) const {
    if (!present(key)) return fallback;
    const nlohmann::json& value = at(key);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) ||
        value.get<int64_t>() < min || value.get<int64_t>() > max)
      fail(key, cat("must be an integer from ", min, " to ", max));
    return value.get<int64_t>();
  }
  // null counts as absent.
  std::optional<int64_t> optional_integer(const std::string& key, int64_t min, int64_t max) const {
    if (!given(key)) return std::nullopt;
    return integer(key, 0, min, max);
  }
  double number(const std::string& key, double fallback, double min, double max) const {
    if (!present(key)) return fallback;
    const nlohmann::json& value = at(key);
    if (!value.is_number() || !(value.get<double>() >= min && value.get<double>() <= max))
      fail(key, cat("must be a number from ", min, " to ", max));
    return value.get<double>();
  }
  double number_or(const std::string& key, double fallback, double min, double max) const {
    return given(key) ? number(key, fallback, min, max) : fallback;
  }
  double dropout(const std::string& key, double fallback) const {
    double p = number(key, fallback, 0, 1);
    if (p == 1) fail(key, "must be in [0, 1)");
    return p;
  }
  bool flag(const std::string& key, bool fallback) const {
    if (!given(key)) return fallback;
    if (!at(key).is_boolean()) fail(key, "must be true or false");
    return at(key).get<bool>();
  }
  std::string text(const std::string& key, const std::string& fallback) const {
    if (!given(key)) return fallback;
    if (!at(key).is_string()) fail(key, "must be a string");
    return at(key).get<std::string>();
  }
  // An option that only one value of works.
  void refuse_true(const std::string& key, const std::string& why) const {
    if (flag(key, false)) fail(key, cat(why, "; plait cannot do this, only false works"));
  }

 private:
  const nlohmann::json& object_;
  std::string origin_;
};

}  // namespace plait::detail
