// From what was given to what holds: sizes of the layout from the world, the batch equation
//   batch_size = per_device_train_batch_size x data_parallel_size x gradient_accumulation_steps
// Pure arithmetic on a Config that passed check_ranges; every refusal is Error(kUsage) with the equation or factors and the values that would fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/config/config.h"

namespace plait {

// Which of the sizes were given (the Config holds their values).
struct GivenSizes {
  bool data = false, model = false, pipeline = false;
};

struct GivenBatch {
  bool batch_size = false, per_device = false, accumulation = false;
};

// Fills the sizes left out. `strategy` is distributed_strategy or "". `world_size` 0: no launcher yet, sizes left out are 1.
// Left out with a world: the one size that the others fix; of several, data_parallel_size takes what the others leave (they are 1).
void resolve_layout(Config* config, GivenSizes given, const std::string& strategy, int64_t world_size);

// Fills the batch sizes left out; needs the resolved layout. `default_per_device` is what counts when nothing says otherwise.
void resolve_batch(Config* config, GivenBatch given, int64_t default_per_device);

// Largest divisor of `n` that is at most `limit`; n, limit >= 1.
int64_t largest_divisor_up_to(int64_t n, int64_t limit);

// "2 x 4 x 1, 4 x 2 x 1": up to `most` ways to write `world_size` as data x model x pipeline, nearest to the given sizes first.
std::string fitting_layouts(int64_t world_size, const DistributedConfig& wanted, size_t most);

}  // namespace plait
