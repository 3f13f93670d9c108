#include "plait/elastic/launcher_variables.h"

#include <charconv>

namespace plait::detail {

std::optional<std::string> filled(const Variable& variable, const std::string& name) {
  auto value = variable(name);
  if (value && value->empty()) value.reset();
  return value;
}

int64_t number(const std::string& name, const std::string& text, int64_t least, int64_t most, const std::string& rule) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw_error(ExitCode::kUsage, "the environment variable ", name, "=", text, " is not a whole number from ", least, " to ", most, " (",
                rule, ")");
  }
  return value;
}

std::optional<Given> given_number(const Variable& variable, const std::string& name, int64_t least, int64_t most, const std::string& rule) {
  auto text = filled(variable, name);
  if (!text) return std::nullopt;
  return Given{name, number(name, *text, least, most, rule)};
}

int port_from(std::string_view job) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return 15000 + static_cast<int>((hash >> 16) % 15000);
}

}  // namespace plait::detail
