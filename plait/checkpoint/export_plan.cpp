#include "plait/checkpoint/export_plan.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "plait/base/error.h"

namespace plait {

namespace {

FileDType file_dtype(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return FileDType::kF32;
    case DType::kBFloat16: return FileDType::kBF16;
    case DType::kFloat16: return FileDType::kF16;
    case DType::kFloat64: return FileDType::kF64;
  }
  PLAIT_CHECK(false, "dtype ", static_cast<int>(dtype));
}

int64_t product_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  auto five = [](size_t n) {
    std::string digits = std::to_string(n);
    return digits.size() < 5 ? std::string(5 - digits.size(), '0') + digits : digits;
  };
  return cat("model-", five(index + 1), "-of-", five(count), ".safetensors");
}

// Written by hand: the order of keys in a safetensors header is that of the data.
std::string header_text(const std::vector<const TensorSpec*>& tensors, FileDType dtype,
                        const std::map<std::string, std::string>& metadata) {
  auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string out = "{\"__metadata__\":{";
  bool first = true;
  for (const auto& [key, value] : metadata) {
    out += cat(first ? "" : ",", quoted(key), ":", quoted(value));
    first = false;
  }
  out += "}";
  int64_t begin = 0;
  for (const auto* tensor : tensors) {
    int64_t end = begin + product_of(tensor->shape) * element_bytes(dtype);
    out += cat(",", quoted(tensor->name), ":{\"dtype\":\"", dtype_name(dtype), "\",\"shape\":[", join(tensor->shape, ","),
               "],\"data_offsets\":[", begin, ",", end, "]}");
    begin = end;
  }
  out += "}";
  out.append((8 - out.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  uint64_t size = out.size();
  std::memcpy(length.data(), &size, 8);
  return length + out;
}

}  // namespace

ExportPlan plan_export(const std::vector<TensorSpec>& all, DType dtype, int64_t max_shard_bytes,
                       const std::map<std::string, std::string>& metadata) {
  ExportPlan plan;
  plan.dtype = file_dtype(dtype);
  auto meta = metadata;
  meta.emplace("format", "pt");  // transformers asks for it
  std::vector<const TensorSpec*> sorted;
  for (const auto& spec : all) sorted.push_back(&spec);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  std::vector<std::vector<const TensorSpec*>> shards(1);
  int64_t shard_bytes = 0, total_bytes = 0;
  for (const auto* spec : sorted) {
    int64_t bytes = product_of(spec->shape) * element_bytes(plan.dtype);
    if (!shards.back().empty() && shard_bytes + bytes > max_shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shards.back().push_back(spec);
    shard_bytes += bytes;
    total_bytes += bytes;
    plan.num_elements += product_of(spec->shape);
  }
  nlohmann::json index{{"metadata", {{"total_parameters", plan.num_elements}, {"total_size", total_bytes}}},
                       {"weight_map", nlohmann::json::object()}};
  for (size_t i = 0; i < shards.size(); ++i) {
    PlannedFile file{shard_name(i, shards.size()), header_text(shards[i], plan.dtype, meta), 0};
    int64_t at = static_cast<int64_t>(file.head.size());
    for (const auto* spec : shards[i]) {
      PLAIT_CHECK(plan.tensors.emplace(spec->name, PlannedTensor{spec->shape, i, at}).second, "tensor ", spec->name, " is listed twice");
      index["weight_map"][spec->name] = file.name;
      at += product_of(spec->shape) * element_bytes(plan.dtype);
    }
    file.num_bytes = at;
    plan.files.push_back(std::move(file));
  }
  if (shards.size() > 1) plan.index_json = index.dump(2) + "\n";
  return plan;
}

}  // namespace plait
