#include "plait/data/tokenizer_normalizer.h"

namespace plait {

namespace {

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) append_lower_case(out, next_code_point(text, position));
  return out;
}

std::string clean_and_space(std::string_view text, bool clean, bool space_ideographs) {
  std::string out;
  out.reserve(text.size() + 16);
  for (size_t position = 0; position < text.size();) {
    const uint32_t c = next_code_point(text, position);
    if (clean && is_bert_control(c)) continue;
    if (clean && is_white_space(c)) {
      out.push_back(' ');
    } else if (space_ideographs && is_cjk_ideograph(c)) {
      out.push_back(' ');
      append_code_point(out, c);
      out.push_back(' ');
    } else {
      append_code_point(out, c);
    }
  }
  return out;
}

std::string without_accents(std::string_view text) {
  const std::string decomposed = normalize_unicode(text, UnicodeForm::kNfd);
  std::string out;
  out.reserve(decomposed.size());
  for (size_t position = 0; position < decomposed.size();) {
    const uint32_t c = next_code_point(decomposed, position);
    if (!is_bert_accent(c)) append_code_point(out, c);
  }
  return out;
}

std::string apply_bert(const NormalizerStep& step, std::string text) {
  if (step.clean_text || step.handle_chinese) text = clean_and_space(text, step.clean_text, step.handle_chinese);
  if (step.strip_accents && !is_ascii(text)) text = without_accents(text);
  if (step.lowercase) text = lower_case(text);
  return text;
}

}  // namespace

std::string Normalizer::apply(std::string_view text) const {
  std::string current(text);
  for (const auto& step : steps_) {
    switch (step.kind) {
      case NormalizerStep::Kind::kBert: current = apply_bert(step, std::move(current)); break;
      case NormalizerStep::Kind::kUnicodeForm: current = normalize_unicode(current, step.form); break;
      case NormalizerStep::Kind::kLowercase: current = lower_case(current); break;
    }
  }
  return current;
}

}  // namespace plait
