#include "plait/data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>

#include "plait/base/error.h"
#include "plait/data/unicode_tables.h"

namespace plait {

namespace {

bool is_in(std::span<const CodePointRange> ranges, uint32_t code_point) {
  auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

// How many bytes at `position` are the start of one well-formed character, and whether that character is complete.
struct Utf8Part {
  size_t size;
  bool complete;
};

Utf8Part utf8_part(std::string_view text, size_t position) {
  auto byte = [&](size_t index) { return static_cast<uint8_t>(text[index]); };
  const uint8_t lead = byte(position);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's bounds rule out overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (position + i >= text.size() || byte(position + i) < low || byte(position + i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

std::optional<size_t> first_invalid_utf8(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const Utf8Part part = utf8_part(text, position);
    if (!part.complete) return position;
    position += part.size;
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Part part = utf8_part(text, position);
    if (part.complete) {
      out.append(text.substr(position, part.size));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    position += part.size;
  }
  return out;
}

uint32_t next_code_point(std::string_view text, size_t& position) {
  auto byte = [&](size_t index) { return static_cast<uint32_t>(static_cast<uint8_t>(text[index])); };
  const uint32_t lead = byte(position);
  if (lead < 0x80) {
    position += 1;
    return lead;
  }
  if (lead < 0xE0) {
    position += 2;
    return (lead & 0x1F) << 6 | (byte(position - 1) & 0x3F);
  }
  if (lead < 0xF0) {
    position += 3;
    return (lead & 0x0F) << 12 | (byte(position - 2) & 0x3F) << 6 | (byte(position - 1) & 0x3F);
  }
  position += 4;
  return (lead & 0x07) << 18 | (byte(position - 3) & 0x3F) << 12 | (byte(position - 2) & 0x3F) << 6 | (byte(position - 1) & 0x3F);
}

void append_code_point(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
    return;
  }
  uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

bool is_white_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_letter(uint32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  return is_in(letter_ranges(), c);
}

bool is_number(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return is_in(number_ranges(), c);
}

bool is_numeric_character(uint32_t c) { return is_number(c) || (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6); }

bool is_word_character(uint32_t c) {
  if (c < 0x80) return is_letter(c) || is_number(c) || c == '_';
  // Alphabetic symbols (circled and squared letters) and the two joiners count besides the categories.
  if (c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  if (is_letter(c)) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool is_bert_punctuation(uint32_t c) { return is_in(bert_punctuation_ranges(), c); }

bool is_bert_control(uint32_t c) {
  if (c >= 0x20 && c < 0x7F) return false;
  return is_in(bert_control_ranges(), c);
}

bool is_bert_accent(uint32_t c) { return c >= 0x300 && is_in(bert_accent_ranges(), c); }

bool is_cjk_ideograph(uint32_t c) {
  if (c < 0x3400) return false;
  return c <= 0x4DBF || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_lower_case(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point >= 'A' && code_point <= 'Z' ? code_point + 32 : code_point));
  } else if (code_point == 0x130) {
    out.append("i\xCC\x87");
  } else {
    append_code_point(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
  }
}

std::string normalize_unicode(std::string_view text, UnicodeForm form) {
  if (is_ascii(text)) return std::string(text);
  int options = UTF8PROC_STABLE;
  if (form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc) options |= UTF8PROC_COMPOSE;
  if (form == UnicodeForm::kNfd || form == UnicodeForm::kNfkd) options |= UTF8PROC_DECOMPOSE;
  if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                                 &result, static_cast<utf8proc_option_t>(options));
  std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0) throw_error(ExitCode::kData, "cannot normalize a text of ", text.size(), " bytes: ", utf8proc_errmsg(size));
  return std::string(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
}

}  // namespace plait
