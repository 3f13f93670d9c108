// Text from pieces. Numbers are written in the shortest form that reads back to the same value.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace plait {

namespace detail {
inline void append(std::string& out, std::string_view piece) { out.append(piece); }
inline void append(std::string& out, const char* piece) { out.append(piece); }
inline void append(std::string& out, const std::string& piece) { out.append(piece); }
inline void append(std::string& out, char piece) { out.push_back(piece); }
inline void append(std::string& out, bool piece) { out.append(piece ? "true" : "false"); }
template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
void append(std::string& out, Number piece) {
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, piece).ptr;
  out.append(buffer, end);
}
}  // namespace detail

template <class... Pieces>
std::string cat(const Pieces&... pieces) {
  std::string out;
  (detail::append(out, pieces), ...);
  return out;
}

// "1, 2, 3"
template <class Range>
std::string join(const Range& items, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out.append(separator);
    first = false;
    detail::append(out, item);
  }
  return out;
}

// The item of `known` closest to `word` by edit distance, or "" when none is near (more than a third of its length off).
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace plait
