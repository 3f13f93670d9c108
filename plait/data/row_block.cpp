#include "plait/data/row_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "plait/base/atomic_file.h"
#include "plait/base/error.h"

namespace plait::detail {

namespace {

// File: CacheHeader, then the body: sections in the order of Section, each at a multiple of kAlignment from the file's start,
// native byte order (little endian on every machine plait runs on), last the JSON of the small things.
constexpr char kCacheMagic[8] = {'p', 'l', 'a', 'i', 't', 'r', 'o', 'w'};
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kMaxCacheJsonBytes = uint64_t{1} << 28;

enum Section { kOffsets, kDocumentStarts, kIds, kAttentionMask, kTokenTypes, kLabels, kLabelIndex, kSmallThings, kNumSections };

struct CacheHeader {
  char magic[8];
  char key[64];
  uint64_t file_bytes;
  uint64_t checksum[2];  // XXH3-128 of the body
  uint64_t section_bytes[kNumSections];
};
constexpr uint64_t kBodyBegin = (sizeof(CacheHeader) + kAlignment - 1) / kAlignment * kAlignment;

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

nlohmann::json small_things(const RowColumns& columns) {
  return {{"label_texts", columns.label_texts},
          {"label_rows", columns.label_rows},
          {"label_lines", columns.label_lines},
          {"num_cut_rows", columns.num_cut_rows},
          {"num_dropped_tokens", columns.num_dropped_tokens},
          {"longest_row", columns.longest_row}};
}

template <class T>
std::span<const T> section_as(std::string_view bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

RowBlock::RowBlock(RowColumns columns) : columns_(std::move(columns)) {
  offsets = columns_.offsets;
  document_starts = columns_.document_starts;
  ids = columns_.ids;
  attention_mask = columns_.attention_mask;
  token_types = columns_.token_types;
  labels = columns_.labels;
  label_index = columns_.label_index;
  label_texts = columns_.label_texts;
  label_rows = columns_.label_rows;
  label_lines = columns_.label_lines;
  num_cut_rows = columns_.num_cut_rows;
  num_dropped_tokens = columns_.num_dropped_tokens;
  longest_row = columns_.longest_row;
}

RowBlock::~RowBlock() {
  if (mapped_) munmap(mapped_, mapped_bytes_);
}

void RowBlock::write_cache(const std::string& path, const std::string& key, const RowColumns& columns) {
  PLAIT_CHECK(key.size() == sizeof CacheHeader::key);
  std::string json = small_things(columns).dump();
  auto bytes_of = [](const auto& column) {
    return std::string_view(reinterpret_cast<const char*>(column.data()), column.size() * sizeof(column[0]));
  };
  const std::string_view sections[kNumSections] = {
      bytes_of(columns.offsets),     bytes_of(columns.document_starts), bytes_of(columns.ids),         bytes_of(columns.attention_mask),
      bytes_of(columns.token_types), bytes_of(columns.labels),          bytes_of(columns.label_index), json};
  CacheHeader header{};
  std::memcpy(header.magic, kCacheMagic, sizeof kCacheMagic);
  std::memcpy(header.key, key.data(), key.size());
  XXH3_state_t* state = XXH3_createState();
  PLAIT_CHECK(state);
  XXH3_128bits_reset(state);
  AtomicFile file(path);
  const std::string zeros(std::max<size_t>(kBodyBegin, kAlignment), '\0');
  file.write(std::string_view(zeros).substr(0, kBodyBegin));  // the header comes last, when the checksum is known
  header.file_bytes = kBodyBegin;
  for (int s = 0; s < kNumSections; ++s) {
    std::string_view padding = std::string_view(zeros).substr(0, aligned(sections[s].size()) - sections[s].size());
    for (std::string_view piece : {sections[s], padding}) {
      file.write(piece);
      XXH3_128bits_update(state, piece.data(), piece.size());
      header.file_bytes += piece.size();
    }
    header.section_bytes[s] = sections[s].size();
  }
  XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  header.checksum[0] = hash.low64;
  header.checksum[1] = hash.high64;
  file.write_at(0, &header, sizeof header);
  file.commit();
}

std::shared_ptr<RowBlock> RowBlock::open_cache(const std::string& path, const std::string& key, std::string& damage) {
  damage.clear();
  std::shared_ptr<RowBlock> block(new RowBlock);
  if (!block->map(path, damage) || !block->find_sections(key, damage)) return nullptr;
  block->from_cache = true;
  return block;
}

// False with `damage` empty: no such file.
bool RowBlock::map(const std::string& path, std::string& damage) {
  int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno != ENOENT && errno != ENOTDIR) damage = std::strerror(errno);
    return false;
  }
  struct stat status {};
  size_t file_bytes = fstat(descriptor, &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
  void* mapped = file_bytes < kBodyBegin ? MAP_FAILED : mmap(nullptr, file_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  int fault = errno;
  close(descriptor);
  if (mapped == MAP_FAILED) {
    damage = file_bytes < kBodyBegin ? cat("only ", file_bytes, " bytes long")
                                     : cat("cannot be mapped: ", static_cast<const char*>(std::strerror(fault)));
    return false;
  }
  mapped_ = mapped;
  mapped_bytes_ = file_bytes;
  return true;
}

bool RowBlock::find_sections(const std::string& key, std::string& damage) {
  auto refuse = [&](std::string why) {
    damage = std::move(why);
    return false;
  };
  const char* base = static_cast<const char*>(mapped_);
  CacheHeader header;
  std::memcpy(&header, base, sizeof header);
  if (std::memcmp(header.magic, kCacheMagic, sizeof kCacheMagic) != 0) return refuse("not a cache file");
  if (key != std::string_view(header.key, sizeof header.key)) return refuse("made from other inputs");
  if (header.file_bytes != mapped_bytes_) return refuse(cat(mapped_bytes_, " bytes long instead of ", header.file_bytes));
  XXH128_hash_t hash = XXH3_128bits(base + kBodyBegin, mapped_bytes_ - kBodyBegin);
  if (hash.low64 != header.checksum[0] || hash.high64 != header.checksum[1]) return refuse("its checksum does not match");
  std::string_view sections[kNumSections];
  uint64_t position = kBodyBegin;
  for (int s = 0; s < kNumSections; ++s) {
    uint64_t bytes = header.section_bytes[s], left = mapped_bytes_ - position;
    if (bytes > left || aligned(bytes) > left) return refuse("a section runs past its end");
    sections[s] = std::string_view(base + position, bytes);
    position += aligned(bytes);
  }
  offsets = section_as<int64_t>(sections[kOffsets]);
  document_starts = section_as<int64_t>(sections[kDocumentStarts]);
  ids = section_as<int32_t>(sections[kIds]);
  attention_mask = section_as<int32_t>(sections[kAttentionMask]);
  token_types = section_as<int32_t>(sections[kTokenTypes]);
  labels = section_as<int32_t>(sections[kLabels]);
  label_index = section_as<int32_t>(sections[kLabelIndex]);
  if (!read_small_things(sections[kSmallThings])) return refuse("its description cannot be read");
  bool adds_up = !offsets.empty() && offsets.front() == 0 && offsets.back() == static_cast<int64_t>(ids.size());
  return adds_up || refuse("its rows do not add up");
}

bool RowBlock::read_small_things(std::string_view json_text) {
  if (json_text.size() > kMaxCacheJsonBytes) return false;
  try {
    auto json = nlohmann::json::parse(json_text);
    label_texts = json.at("label_texts").get<std::vector<std::string>>();
    label_rows = json.at("label_rows").get<std::vector<int64_t>>();
    label_lines = json.at("label_lines").get<std::vector<int64_t>>();
    num_cut_rows = json.at("num_cut_rows").get<int64_t>();
    num_dropped_tokens = json.at("num_dropped_tokens").get<int64_t>();
    longest_row = json.at("longest_row").get<int64_t>();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

Dataset RowBlock::make_dataset(std::shared_ptr<const RowBlock> block, std::shared_ptr<const std::vector<int32_t>> classes) {
  Dataset dataset;
  dataset.block_ = std::move(block);
  dataset.classes_ = std::move(classes);
  return dataset;
}

}  // namespace plait::detail
