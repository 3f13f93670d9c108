// Evaluation and prediction: forward-only schedule over all rows, each scored once whatever the layout and batch sizes. Changes nothing.
// Rank rule: collective over the mesh.
#pragma once

#include <vector>

#include "plait/comm/mesh.h"
#include "plait/data/dataset.h"
#include "plait/train/metrics.h"
#include "plait/train/parallelize.h"

namespace plait {

// rows_per_micro_batch: of one data rank. Error(kData) when nothing was scored, Error(kNonFinite) when the loss is not finite.
EvalResult evaluate(const Config& config, ParallelModel& model, const Mesh& mesh, const Dataset& rows, int64_t rows_per_micro_batch);

// Logits [num_rows, C] in row order, fp32, the same on every rank.
at::Tensor predict_logits(const Config& config, ParallelModel& model, const Mesh& mesh, const Dataset& rows, int64_t rows_per_micro_batch);

}  // namespace plait
