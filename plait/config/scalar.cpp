#include "plait/config/scalar.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace plait {

namespace {
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Without a leading '+' and without underscores between digits; nothing when an underscore stands elsewhere.
std::optional<std::string> plain_number(const std::string& text) {
  std::string out;
  size_t begin = !text.empty() && text[0] == '+' ? 1 : 0;
  if (begin == 1 && (text.size() < 2 || text[1] == '-' || text[1] == '+')) return std::nullopt;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == begin || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}
}  // namespace

std::optional<int64_t> parse_integer_text(const std::string& text) {
  auto plain = plain_number(text);
  if (!plain || plain->empty()) return std::nullopt;
  int64_t value = 0;
  auto [end, problem] = std::from_chars(plain->data(), plain->data() + plain->size(), value);
  if (problem == std::errc() && end == plain->data() + plain->size()) return value;
  auto real = parse_real_text(text);
  if (!real || std::abs(*real) >= 0x1p53 || *real != std::floor(*real)) return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::optional<double> parse_real_text(const std::string& text) {
  auto plain = plain_number(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string word = lower(*plain);
  if (word == "inf" || word == ".inf" || word == "infinity") return INFINITY;
  if (word == "-inf" || word == "-.inf" || word == "-infinity") return -INFINITY;
  size_t first = word[0] == '-' ? 1 : 0;
  if (first >= word.size() || (!is_digit(word[first]) && word[first] != '.')) return std::nullopt;
  double value = 0;
  auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (problem != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

bool is_number_out_of_range(const std::string& text) {
  auto plain = plain_number(text);
  if (!plain || plain->empty()) return false;
  double value = 0;
  auto [end, problem] = std::from_chars(plain->data(), plain->data() + plain->size(), value);
  return problem == std::errc::result_out_of_range && end == plain->data() + plain->size();
}

std::optional<bool> parse_bool_text(const std::string& text) {
  std::string word = lower(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

bool has_leading_zero(const std::string& text) {
  size_t first = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return text.size() > first + 1 && text[first] == '0' &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(first), text.end(), is_digit);
}

}  // namespace plait
