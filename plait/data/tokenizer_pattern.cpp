#include "plait/data/tokenizer_pattern.h"

#include <pcre2.h>

#include <array>
#include <cctype>
#include <stdexcept>
#include <vector>

#include "plait/base/error.h"

namespace plait {

namespace {

// White_Space. PCRE2's own \s also takes U+180E.
constexpr std::string_view kSpaces = "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument(reason); }

// Rewrites a pattern from Oniguruma's reading to PCRE2's, one character or escape at a time.
class PatternTranslator {
 public:
  explicit PatternTranslator(const std::string& pattern) : in_(pattern) {}

  std::string translate() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else if (c == '[') {
        open_class();
      } else if (c == '(') {
        open_group();
      } else if (c == '^' || c == '$') {
        refuse(cat("the anchor ", c, " is not supported in a split pattern"));
      } else if (c == '}' && at_ + 1 < in_.size() && in_[at_ + 1] == '+') {
        refuse("a possessive interval such as {1,3}+ is not supported");
      } else {
        copy(1);
      }
    }
    if (in_class_) refuse("a [ is not closed");
    return out_;
  }

 private:
  void copy(size_t count) {
    out_.append(in_, at_, count);
    at_ += count;
  }

  void escape() {
    if (at_ + 1 >= in_.size()) refuse("ends with a backslash");
    const char c = in_[at_ + 1];
    switch (c) {
      case 's':
        out_.append(in_class_ ? std::string(kSpaces) : cat('[', kSpaces, ']'));
        at_ += 2;
        return;
      case 'S':
        if (in_class_) refuse("\\S inside [ ] is not supported");
        out_.append(cat("[^", kSpaces, ']'));
        at_ += 2;
        return;
      case 'p':
      case 'P': {
        const size_t end = in_.find('}', at_);
        if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string::npos) refuse("\\p needs {Property}");
        copy(end + 1 - at_);
        return;
      }
      case 'u': {
        if (at_ + 6 > in_.size()) refuse("\\u needs four hexadecimal digits");
        const std::string digits = in_.substr(at_ + 2, 4);
        for (char digit : digits) {
          if (!std::isxdigit(static_cast<unsigned char>(digit))) refuse("\\u needs four hexadecimal digits");
        }
        out_.append(cat("\\x{", digits, '}'));
        at_ += 6;
        return;
      }
      case 'x':
        if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{') refuse("\\x is supported as \\x{...} only");
        copy(2);
        return;
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'd':
      case 'D': copy(2); return;
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80) {
          refuse(cat("the escape \\", c, " is not supported"));
        }
        copy(2);
    }
  }

  void open_class() {
    in_class_ = true;
    copy(1);
    if (at_ < in_.size() && in_[at_] == '^') copy(1);
    if (at_ < in_.size() && in_[at_] == ']') refuse("an empty [ ] is not supported");
  }

  void class_character(char c) {
    if (c == '[') refuse("a class inside a class is not supported");
    if (c == '&' && in_.compare(at_, 2, "&&") == 0) refuse("&& inside [ ] is not supported");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void open_group() {
    if (at_ + 1 < in_.size() && in_[at_ + 1] == '?') {
      bool known = false;
      for (std::string_view form : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i)"}) {
        known = known || in_.compare(at_, form.size(), form) == 0;
      }
      if (!known) refuse(cat("the group ", in_.substr(at_, 4), " is not supported"));
    }
    copy(1);
  }

  const std::string& in_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

struct SplitPattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern(const std::string& pattern) : pattern_(pattern) {
  if (pattern.size() > 64 * 1024) refuse("the pattern is longer than 64 KiB");
  translated_ = PatternTranslator(pattern_).translate();
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(pcre2_compile_context_create(nullptr),
                                                                                        &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE where = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated_.data()), translated_.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, context.get());
  if (code->code == nullptr) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    refuse(cat(reinterpret_cast<const char*>(message.data()), " (at byte ", where, " of ", translated_, ")"));
  }
  // Only speed: a build of PCRE2 without the compiler interprets.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}

void SplitPattern::for_each_match(std::string_view text, const std::function<bool(size_t, size_t)>& visit) const {
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  if (match == nullptr) throw_error(ExitCode::kResource, "no memory to match a split pattern");
  size_t from = 0;
  while (from < text.size()) {
    // Without PCRE2_NO_UTF_CHECK each call would read the whole rest of the text.
    const int result =
        pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0) {
      throw_error(ExitCode::kCheckpoint, "the split pattern ", pattern_, " gives up on a text of ", text.size(), " bytes (PCRE2 error ",
                  result, ")");
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    const size_t begin = bounds[0], end = bounds[1];
    if (end > begin) {
      if (!visit(begin, end)) return;
      from = end;
    } else {
      // An empty match splits nothing: go on behind the next character.
      from = end + 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    }
  }
}

}  // namespace plait
