#include "plait/data/tokenizer_added.h"

#include <algorithm>

#include "plait/data/unicode.h"

namespace plait {

namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return is_word_character(next_code_point(text, begin));
}

bool starts_with_word(std::string_view text) {
  size_t position = 0;
  return !text.empty() && is_word_character(next_code_point(text, position));
}

size_t white_space_at_start(std::string_view text) {
  size_t end = 0;
  for (size_t next = 0; next < text.size() && is_white_space(next_code_point(text, next)); end = next) {}
  return end;
}

// Where the white space at the end of `text` begins, not before `from`.
size_t white_space_at_end(std::string_view text, size_t from) {
  size_t end = text.size();
  while (end > from) {
    size_t begin = end - 1;
    while (begin > from && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t position = begin;
    if (!is_white_space(next_code_point(text, position))) break;
    end = begin;
  }
  return end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<std::pair<std::string, AddedToken>>& spelling_and_token) {
  nodes_.emplace_back();
  for (const auto& [spelling, token] : spelling_and_token) {
    size_t node = 0;
    for (char c : spelling) {
      const auto byte = static_cast<uint8_t>(c);
      auto& children = nodes_[node].children;
      auto child = std::find_if(children.begin(), children.end(), [&](const auto& entry) { return entry.first == byte; });
      if (child == children.end()) {
        const auto added = static_cast<int32_t>(nodes_.size());
        children.emplace_back(byte, added);
        nodes_.emplace_back();
        node = static_cast<size_t>(added);
      } else {
        node = static_cast<size_t>(child->second);
      }
    }
    if (nodes_[node].token >= 0) continue;
    nodes_[node].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
    starts_[static_cast<uint8_t>(spelling.front())] = true;
  }
}

bool AddedTokenMatcher::longest_at(std::string_view text, size_t begin, size_t& end, int32_t& token) const {
  token = -1;
  size_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto& children = nodes_[node].children;
    auto child = std::find_if(children.begin(), children.end(), [&](const auto& entry) { return entry.first == byte; });
    if (child == children.end()) break;
    node = static_cast<size_t>(child->second);
    if (nodes_[node].token >= 0) {
      token = nodes_[node].token;
      end = i + 1;
    }
  }
  return token >= 0;
}

std::vector<AddedTokenMatcher::Span> AddedTokenMatcher::split(std::string_view text) const {
  std::vector<Span> spans;
  if (text.empty()) return spans;
  size_t done = 0;  // end of the last span
  for (size_t position = 0; position < text.size() && !tokens_.empty();) {
    size_t end = 0;
    int32_t index = -1;
    if (!starts_[static_cast<uint8_t>(text[position])] || !longest_at(text, position, end, index)) {
      ++position;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = position;
    position = end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip && begin > done) begin = white_space_at_end(text.substr(0, begin), done);
    if (token.rstrip) end += white_space_at_start(text.substr(end));
    if (done < begin) spans.push_back({done, begin, -1});
    spans.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) spans.push_back({done, text.size(), -1});
  return spans;
}

}  // namespace plait
