// What the model itself has to compute for a step, whatever the layout and however it is done, and how much a machine can: their quotient is
// MFU (model FLOPs utilisation, arXiv 2204.02311, appendix B).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "plait/comm/mesh.h"
#include "plait/config/model_shape.h"
#include "plait/data/dataset.h"
#include "plait/model/stage_model.h"

namespace plait {

// Floating-point operations of forward and backward over these rows: 6 for each weight of a matrix product and each token it meets (2 in the
// forward, 4 in the backward), and for attention 12 * heads * head size for each pair of query and key that the mask leaves, in each layer.
//   layers          6 (H N D + 2 H Nkv D + N D H + 2 or, gated, 3 H F) a token
//   language head   6 V H for each token that has a target: the others do not reach it
//   classification  6 (H H + H C) a row
// Lengths are the rows' own, without padding; documents of one row that do not see each other count apart. Norms, activations, softmax, lookups
// and the optimizer do not count, and nothing that is computed twice.
double step_flops(const ModelShape& shape, const HeadOptions& head, const Dataset& rows, std::span<const int64_t> row_ids);

// FLOP/s of square matrix products in `type`, all ranks at work at the same time, summed over them: the best of four windows of 0.1 s, two of
// LibTorch's product and two of plait's own (tensor/matrix_product.h). Collective over the mesh. `seconds`: another clock, for tests.
double measure_matrix_rate(const Mesh& mesh, at::Device device, at::ScalarType type, const std::function<double()>& seconds = {});

}  // namespace plait
