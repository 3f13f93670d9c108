#include "plait/data/byte_bpe.h"

#include <algorithm>
#include <stdexcept>

#include "plait/base/text.h"
#include "plait/data/unicode.h"

namespace plait {

namespace {

constexpr size_t kCachedWordBytes = 64;  // longer words are rarely seen twice
constexpr size_t kCachedWordsPerShard = 4096;

bool stands_for_itself(uint32_t byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD && byte <= 0xFF); }

// Bytes that are not printable are numbered from U+0100 in their own order.
std::array<uint32_t, 256> byte_level_alphabet() {
  std::array<uint32_t, 256> alphabet{};
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) alphabet[byte] = stands_for_itself(byte) ? byte : next++;
  return alphabet;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

std::string byte_level_character(uint8_t byte) {
  static const std::array<uint32_t, 256> alphabet = byte_level_alphabet();
  std::string out;
  append_code_point(out, alphabet[byte]);
  return out;
}

std::optional<std::string> byte_level_decode(std::string_view spelling) {
  static const std::array<int16_t, 0x180> bytes = [] {
    std::array<int16_t, 0x180> inverse{};
    inverse.fill(-1);
    const auto alphabet = byte_level_alphabet();
    for (size_t byte = 0; byte < 256; ++byte) inverse[alphabet[byte]] = static_cast<int16_t>(byte);
    return inverse;
  }();
  std::string out;
  for (size_t position = 0; position < spelling.size();) {
    const uint32_t c = next_code_point(spelling, position);
    if (c >= bytes.size() || bytes[c] < 0) return std::nullopt;
    out.push_back(static_cast<char>(bytes[c]));
  }
  return out;
}

// A pair that may be joined: the symbol at `position` with the one behind it.
struct ByteBpe::Candidate {
  int32_t rank;
  int32_t position;
  int32_t id;
  bool operator<(const Candidate& other) const {  // std heaps hold the largest first: the lowest rank, then the leftmost
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

ByteBpe::ByteBpe(const Vocabulary& vocabulary, const ByteBpeOptions& options) : fuse_unk_(options.fuse_unk) {
  auto id_of = [&](const std::string& token, const std::string& who, int64_t number) {
    auto found = vocabulary.find(token);
    if (found != vocabulary.end()) return found->second;
    throw std::invalid_argument(cat(who, number < 0 ? "" : cat(" ", number), " names \"", token, "\", which is not in the vocabulary"));
  };
  for (size_t byte = 0; byte < 256; ++byte) {
    auto found = vocabulary.find(byte_level_character(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == vocabulary.end() ? -1 : found->second;
  }
  if (options.unk_token) unk_id_ = id_of(*options.unk_token, "unk_token", -1);
  merges_.reserve(options.merges.size());
  for (size_t rank = 0; rank < options.merges.size(); ++rank) {
    const auto& [left, right] = options.merges[rank];
    const auto number = static_cast<int64_t>(rank);
    const uint64_t pair = pair_key(id_of(left, "merge", number), id_of(right, "merge", number));
    merges_.insert_or_assign(pair, Merge{static_cast<int32_t>(rank), id_of(left + right, "merge", number)});
  }
  if (options.ignore_merges) {
    for (const auto& [token, id] : vocabulary) {
      if (auto bytes = byte_level_decode(token)) whole_words_.emplace(std::move(*bytes), id);
    }
  }
}

const ByteBpe::Merge* ByteBpe::find_merge(int32_t left, int32_t right) const {
  auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<ByteBpe::Symbol> ByteBpe::symbols_of(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  bool after_unknown = false;
  for (char c : word) {
    int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    const bool unknown = id < 0;
    if (unknown) id = unk_id_;
    const bool fused = unknown && after_unknown && fuse_unk_;
    after_unknown = unknown;
    if (id < 0 || fused) continue;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  }
  if (!symbols.empty()) symbols.back().next = -1;
  return symbols;
}

void ByteBpe::merge_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > INT32_MAX / 2) throw std::invalid_argument("a word of more than 1 GiB");
  std::vector<Symbol> symbols = symbols_of(word);
  std::vector<Candidate> heap;
  heap.reserve(symbols.size());
  auto candidate_at = [&](int32_t position) -> const Merge* {
    const Symbol& symbol = symbols[static_cast<size_t>(position)];
    return symbol.next < 0 ? nullptr : find_merge(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
  };
  auto offer = [&](int32_t position) {
    if (position < 0) return;
    if (const Merge* merge = candidate_at(position)) {
      heap.push_back({merge->rank, position, merge->id});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  for (size_t i = 0; i < symbols.size(); ++i) offer(static_cast<int32_t>(i));
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.id < 0) continue;  // joined into its left neighbour meanwhile
    // An outdated candidate still counts when the pair that stands here now gives the same token.
    const Merge* merge = candidate_at(best.position);
    if (merge == nullptr || merge->id != best.id) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = best.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    offer(left.previous);
    offer(best.position);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

void ByteBpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (!whole_words_.empty()) {
    if (auto whole = whole_words_.find(word); whole != whole_words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  if (word.size() > kCachedWordBytes) {
    merge_word(word, ids);
    return;
  }
  Shard& shard = cache_[StringHash{}(word) >> 7 & 15];
  {
    std::lock_guard lock(shard.mutex);
    if (auto seen = shard.words.find(word); seen != shard.words.end()) {
      ids.insert(ids.end(), seen->second.begin(), seen->second.end());
      return;
    }
  }
  const size_t ids_before = ids.size();
  merge_word(word, ids);
  std::lock_guard lock(shard.mutex);
  if (shard.words.size() < kCachedWordsPerShard) {
    shard.words.emplace(std::string(word), std::vector<int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(ids_before), ids.end()));
  }
}

}  // namespace plait
