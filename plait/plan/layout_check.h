// Every refusal that needs only the settings, the model's shape and the mesh, in one place for trainer and planner.
// Runs on every rank alike before any process group exists; no communication, no files but the one of schedule custom.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/model_shape.h"
#include "plait/plan/mesh_layout.h"

namespace plait {

// Returns when this layout computes what one process computes, else throws Error(kUsage) naming the setting, its value, where it
// came from, the rule and the values that would work. `layout` holds the resolved sizes (they may come from the world size).
void check_layout(const ModelShape& shape, const MeshLayout& layout, const Config& config);

// Error(kUsage) with every factor and the layouts that would fit when the layout's sizes do not multiply to `world_size`.
void check_world_size(const MeshLayout& layout, int64_t world_size, const Config& config);

// The model_parallel_size values this model can be split by, in rising order: they divide the heads and the FFN, match the KV
// heads (divide them, or are a multiple of them) and leave each rank a row of the vocabulary.
std::vector<int64_t> tensor_sizes_that_fit(const ModelShape& shape);

// All (data, pipeline, tensor) sizes whose product is world_size, nearest to `wanted` first (fewest changed axes, then smallest
// change), as "data 2 x tensor 2 x pipeline 2". With a shape: only those that check_layout's size rules accept.
std::vector<MeshLayout> layouts_that_fit(int64_t world_size, const MeshLayout& wanted, const ModelShape* shape = nullptr);
std::string to_string(const MeshLayout& layout);

}  // namespace plait
