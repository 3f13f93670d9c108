#include "plait/data/tokenizer_split.h"

#include "plait/data/unicode.h"

namespace plait {

namespace {

struct Cut {
  size_t begin;
  size_t end;
  bool is_match;
};

// White space goes, each punctuation character is a word.
bool split_bert(std::string_view text, const WordSplitter::Sink& sink) {
  size_t word = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const uint32_t c = next_code_point(text, position);
    const bool space = is_white_space(c);
    if (!space && !is_bert_punctuation(c)) continue;
    if (begin > word && !sink(text.substr(word, begin - word))) return false;
    if (!space && !sink(text.substr(begin, position - begin))) return false;
    word = position;
  }
  return word == text.size() || sink(text.substr(word));
}

bool split_digits(std::string_view text, bool individually, const WordSplitter::Sink& sink) {
  size_t word = 0;
  bool in_digits = false;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const bool digit = is_numeric_character(next_code_point(text, position));
    if (begin > word && (digit != in_digits || (digit && individually))) {
      if (!sink(text.substr(word, begin - word))) return false;
      word = begin;
    }
    in_digits = digit;
  }
  return word == text.size() || sink(text.substr(word));
}

size_t contraction_at(std::string_view text, size_t position) {
  for (std::string_view form : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.compare(position, form.size(), form) == 0) return form.size();
  }
  return 0;
}

enum class Gpt2Class { kLetter, kNumber, kSpace, kOther };

Gpt2Class gpt2_class(uint32_t c) {
  if (is_letter(c)) return Gpt2Class::kLetter;
  if (is_number(c)) return Gpt2Class::kNumber;
  return is_white_space(c) ? Gpt2Class::kSpace : Gpt2Class::kOther;
}

// End of the run of characters of class `kind` that starts at `position`; last_begin is where its last character begins.
size_t run_end(std::string_view text, size_t position, Gpt2Class kind, size_t& last_begin) {
  size_t end = position;
  for (size_t next = position; next < text.size(); end = next) {
    const size_t begin = next;
    if (gpt2_class(next_code_point(text, next)) != kind) break;
    last_begin = begin;
  }
  return end;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+   by hand: several times as fast as a
// pattern, and the same for every version of Unicode that PCRE2 may have been built with.
bool split_gpt2(std::string_view text, const WordSplitter::Sink& sink) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    if (text[begin] == '\'') end = begin + contraction_at(text, begin);
    if (end == begin) {
      size_t position = begin, last = begin;
      Gpt2Class kind = gpt2_class(next_code_point(text, position));
      const bool blank_first = text[begin] == ' ' && position < text.size();
      if (blank_first) {
        size_t after = position;
        const Gpt2Class next_kind = gpt2_class(next_code_point(text, after));
        if (next_kind != Gpt2Class::kSpace) kind = next_kind;
      }
      end = run_end(text, blank_first ? begin + 1 : begin, kind, last);
      // White space leaves its last character to the word behind it, unless it is the only one.
      if (kind == Gpt2Class::kSpace && end < text.size() && last > begin) end = last;
    }
    if (!sink(text.substr(begin, end - begin))) return false;
    begin = end;
  }
  return true;
}

std::vector<Cut> find_cuts(const SplitStep& step, std::string_view text) {
  std::vector<Cut> cuts;
  size_t done = 0;
  auto add_match = [&](size_t begin, size_t end) {
    if (begin > done) cuts.push_back({done, begin, step.invert});
    cuts.push_back({begin, end, !step.invert});
    done = end;
    return true;
  };
  if (step.kind == SplitStep::Kind::kPattern) {
    step.pattern->for_each_match(text, add_match);
  } else {
    for (size_t found = text.find(step.literal); found != std::string_view::npos; found = text.find(step.literal, done)) {
      add_match(found, found + step.literal.size());
    }
  }
  if (done < text.size()) cuts.push_back({done, text.size(), step.invert});
  return cuts;
}

std::vector<Cut> merge_cuts(const std::vector<Cut>& cuts, SplitBehavior behavior) {
  std::vector<Cut> merged;
  bool previous = false;
  if (behavior == SplitBehavior::kMergedWithNext) {
    for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
      if (cut->is_match && !previous && !merged.empty()) {
        merged.back().begin = cut->begin;
      } else {
        merged.push_back(*cut);
      }
      previous = cut->is_match;
    }
    return {merged.rbegin(), merged.rend()};
  }
  for (const Cut& cut : cuts) {
    const bool joins = behavior == SplitBehavior::kContiguous ? cut.is_match == previous : cut.is_match && !previous;
    if (joins && !merged.empty()) {
      merged.back().end = cut.end;
    } else {
      merged.push_back(cut);
    }
    previous = cut.is_match;
  }
  return merged;
}

bool split_at_matches(const SplitStep& step, std::string_view text, const WordSplitter::Sink& sink) {
  if (step.kind == SplitStep::Kind::kPattern && step.behavior == SplitBehavior::kIsolated) {
    // The form that all published models use: no list of cuts, and stops with the sink.
    size_t done = 0;
    bool going = true;
    step.pattern->for_each_match(text, [&](size_t begin, size_t end) {
      going = (begin == done || sink(text.substr(done, begin - done))) && sink(text.substr(begin, end - begin));
      done = end;
      return going;
    });
    return going && (done == text.size() || sink(text.substr(done)));
  }
  std::vector<Cut> cuts = find_cuts(step, text);
  const bool merges = step.behavior != SplitBehavior::kRemoved && step.behavior != SplitBehavior::kIsolated;
  if (merges) cuts = merge_cuts(cuts, step.behavior);
  for (const Cut& cut : cuts) {
    if (step.behavior == SplitBehavior::kRemoved && cut.is_match) continue;
    if (!sink(text.substr(cut.begin, cut.end - cut.begin))) return false;
  }
  return true;
}

bool split_byte_level(const SplitStep& step, std::string_view text, const WordSplitter::Sink& sink) {
  std::string prefixed;
  if (step.add_prefix_space && text.front() != ' ') {
    prefixed = " ";
    prefixed.append(text);
    text = prefixed;
  }
  return step.use_gpt2_pattern ? split_gpt2(text, sink) : sink(text);
}

}  // namespace

bool WordSplitter::run(size_t step_index, std::string_view text, const Sink& sink) const {
  if (step_index == steps_.size()) return sink(text);
  const SplitStep& step = steps_[step_index];
  const bool last = step_index + 1 == steps_.size();
  const Sink deeper = last ? Sink() : Sink([&](std::string_view piece) { return run(step_index + 1, piece, sink); });
  const Sink& next = last ? sink : deeper;
  switch (step.kind) {
    case SplitStep::Kind::kBert: return split_bert(text, next);
    case SplitStep::Kind::kDigits: return split_digits(text, step.individual_digits, next);
    case SplitStep::Kind::kPattern:
    case SplitStep::Kind::kLiteral: return split_at_matches(step, text, next);
    case SplitStep::Kind::kByteLevel: return split_byte_level(step, text, next);
  }
  return true;
}

}  // namespace plait
