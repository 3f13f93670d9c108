#include <algorithm>
#include <cstring>
#include <set>

#include "plait/base/error.h"
#include "plait/checkpoint/weights.h"
#include "plait/config/strict_json.h"

namespace plait {

namespace {

bool ends_with_word(std::string_view text, std::string_view tail) {
  return text.ends_with(tail) && (text.size() == tail.size() || text[text.size() - tail.size() - 1] == '.');
}

// Equal, or `pattern` is a leading part of the dotted name.
bool name_matches(const std::string& name, const std::string& pattern) {
  if (name == pattern) return true;
  return name.starts_with(pattern) && (pattern.ends_with('.') || name[pattern.size()] == '.');
}

bool matches_any(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) { return name_matches(name, pattern); });
}

// Saved with old models though they are functions of the configuration.
bool is_buffer(const std::string& name) {
  for (const char* tail : {"embeddings.position_ids", "embeddings.token_type_ids", "attn.bias", "attn.masked_bias", "rotary_emb.inv_freq"})
    if (ends_with_word(name, tail)) return true;
  return false;
}

// The names a tensor may have in a folder, best first.
std::vector<std::string> possible_names(const std::string& name, const WeightLoadOptions& options) {
  if (auto alias = options.aliases.find(name); alias != options.aliases.end()) return {alias->second};
  std::vector<std::string> names{name};
  for (const char* prefix : {"bert.", "transformer.", "model."})
    if (name.starts_with(prefix)) names.push_back(name.substr(std::strlen(prefix)));
  for (size_t i = 0, n = names.size(); i < n; ++i) {
    for (auto [now, old] : {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, std::pair{"LayerNorm.bias", "LayerNorm.beta"}})
      if (ends_with_word(names[i], now)) names.push_back(names[i].substr(0, names[i].size() - std::strlen(now)) + old);
  }
  return names;
}

void check_tensor(const TensorSpec& spec, const std::string& file_name, const TensorView& view) {
  if (view.shape != spec.shape)
    throw_error(ExitCode::kCheckpoint, view.file, ": tensor ", shown_name(file_name), " has shape ", shape_text(view.shape),
                ", the model needs ", shape_text(spec.shape));
  if (view.dtype != FileDType::kF64 && view.dtype != FileDType::kF32 && view.dtype != FileDType::kF16 && view.dtype != FileDType::kBF16)
    throw_error(ExitCode::kCheckpoint, view.file, ": tensor ", shown_name(file_name), " has the type ", dtype_name(view.dtype),
                "; weights are read from F64, F32, F16 and BF16");
}

// A folder of tied embeddings may carry the head as well. Equal bytes are harmless; others would be dropped in silence, so: refused.
// False: this model has no table that the head could be.
bool is_tied_head(const SafetensorsFolder& folder, const ResolvedWeights& resolved, const std::string& head) {
  for (const auto& [name, file_name] : resolved.file_name_of) {
    if (!ends_with_word(name, "wte.weight") && !ends_with_word(name, "embed_tokens.weight")) continue;
    auto a = folder.find(head).value(), b = folder.find(file_name).value();
    bool equal = a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, static_cast<size_t>(a.num_bytes)) == 0;
    release_pages(a);
    release_pages(b);
    if (equal) return true;
    throw_error(ExitCode::kCheckpoint, a.file, ": the embeddings are tied (tie_word_embeddings), but ", shown_name(head), " ",
                shape_text(a.shape), " and ", shown_name(file_name), " ", shape_text(b.shape),
                " differ; set tie_word_embeddings to false in config.json, or remove ", shown_name(head));
  }
  return false;
}

std::string counted(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) shown.push_back(shown_name(names[i]));
  return cat(join(shown), names.size() > kShown ? cat(" and ", names.size() - kShown, " more") : "");
}

void refuse_differences(const std::string& folder, const std::vector<std::string>& missing, const std::vector<std::string>& unexpected) {
  if (missing.empty() && unexpected.empty()) return;
  std::string message = cat(folder, ": ");
  if (!missing.empty())
    message += cat(missing.size(), missing.size() == 1 ? " tensor is missing: " : " tensors are missing: ", counted(missing));
  if (!missing.empty() && !unexpected.empty()) message += "; ";
  if (!unexpected.empty())
    message += cat(unexpected.size(), unexpected.size() == 1 ? " tensor has" : " tensors have",
                   " no place in the model that config.json describes: ", counted(unexpected));
  if (missing.size() == 1 && missing[0] == "lm_head.weight")
    message += ". If the output head is the embedding table, config.json must say tie_word_embeddings: true";
  throw Error(ExitCode::kCheckpoint, message);
}

}  // namespace

ResolvedWeights resolve_weights(const SafetensorsFolder& folder, const WeightLoadOptions& options) {
  ResolvedWeights resolved;
  std::vector<std::string> missing, unexpected;
  std::set<std::string> used;
  for (const auto& spec : options.all) {
    if (!options.only.empty() && !matches_any(spec.name, options.only)) continue;
    bool found = false;
    for (const auto& name : possible_names(spec.name, options)) {
      auto view = folder.find(name);
      if (!view) continue;
      check_tensor(spec, name, *view);
      resolved.file_name_of[spec.name] = name;
      used.insert(name);
      found = true;
      break;
    }
    if (found) continue;
    if (matches_any(spec.name, options.may_be_missing)) resolved.report.seeded.push_back(spec.name);
    else missing.push_back(spec.name);
  }
  if (options.only.empty()) {
    for (const auto& name : folder.names()) {
      if (used.count(name) || is_buffer(name)) continue;
      if (name == "lm_head.weight" && is_tied_head(folder, resolved, name)) continue;
      (name.starts_with("cls.") ? resolved.report.ignored : unexpected).push_back(name);
    }
  }
  refuse_differences(folder.path(), missing, unexpected);
  return resolved;
}

std::string LoadReport::notice(const std::string& folder) const {
  std::string line;
  if (!seeded.empty()) line += cat("not in ", folder, ", so newly seeded: ", counted(seeded));
  if (!seeded.empty() && !ignored.empty()) line += "; ";
  if (!ignored.empty()) line += cat("not used from ", folder, " (pre-training heads): ", counted(ignored));
  return line;
}

}  // namespace plait
