// What a scalar of a settings file means. Text in, value out, the same for YAML, JSON and flags: 2e-5, "1e-05", 1_000,
// True/yes/on read as a person means them; hexadecimal and not-a-number are refused; 010 is ten (YAML 1.1 would say 8).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plait {

// Digits with an optional sign and single underscores between digits, or a decimal number without a fraction ("3.0", "1e4") below 2^53.
// Nothing when the text is something else or does not fit.
std::optional<int64_t> parse_integer_text(const std::string& text);

// A decimal number; inf, .inf and infinity are accepted (the setting's range decides), nan is not.
std::optional<double> parse_real_text(const std::string& text);
// A number in form, but too large or too small for a double.
bool is_number_out_of_range(const std::string& text);

// true/yes/on/1 and false/no/off/0 in any case.
std::optional<bool> parse_bool_text(const std::string& text);

// "010": digits that other readers take as octal.
bool has_leading_zero(const std::string& text);

}  // namespace plait
