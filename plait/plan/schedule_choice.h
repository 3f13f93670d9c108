// The choice behind schedule auto: of the kinds that this model and pipeline can run, the one with the smallest predicted length whose
// activations fit. Arithmetic only, a function of its arguments: ranks that agree on the memory agree on the schedule.
// Lengths come from replaying each schedule (check_schedule) with costs by stage: floating-point operations of its layers, embedding and
// head (layer_cost), a backward as two forwards, half of it the weight gradient, messages by the bytes of a border. The machine's speed is
// a constant here, so lengths serve to compare kinds; they suppose that every rank has a core (or device) of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/config/config.h"
#include "plait/config/model_shape.h"
#include "plait/plan/mesh_layout.h"
#include "plait/plan/partition.h"
#include "plait/plan/pipeline_plan.h"
#include "plait/plan/schedule.h"

namespace plait {

// Bytes that one micro-batch of full rows leaves behind on one tensor rank, without recompute.
struct ActivationBytes {
  double layer = 0, embedding = 0, head = 0;  // from its forward to its backward
  double layer_weights = 0,
         head_weights = 0;  // from a backward to its deferred weight gradient: inputs and output gradients of the linears
};

// Letters: e bytes of the dtype, T tokens (rows x row length), B rows, S row length, H hidden, q / k the width of all query / key heads,
// N heads, f FFN width, V vocabulary, t tensor ranks, s = t under sequence parallelism, else 1; w = max(e, 4).
//   layer = 1.1 ( e T [ (4 + 1 with dropout) H / s + (2 q + 2 k + (2 | 3 gated) f) / t ] + attention )
//   attention = 4 N T / t with the fused kernel (its row sums), 2 w N B S^2 / t with attention dropout (probabilities and their mask)
//   layer_weights = e T [ 4 H + (2 q + 2 k + (2 | 3 gated) f) / t ]; sequence parallelism gathers the rows and a W holds them whole
//   embedding = e T H (1 + 1 with dropout) / s;   head = T (w V / t + 2 e H), of a classifier 3 e B H
//   head_weights = e T (V / t + H), of a classifier 2 e B H
ActivationBytes activation_bytes(const ModelShape& shape, const Config& config, int64_t tensor_size);

// Bytes of weights, masters, gradients and two moments of the fullest rank, which are not free for activations: 16 a parameter in float32,
// 18 in 16 bits, 32 in float64; ceil(L / p) layers, the embedding and, untied or on a V, the head's table, over t. Compressed gradients add
// what is kept back (a master, two in float16), the packed numbers (a master) and messages: 6 bytes a parameter in bf16 and fp16, 3 in fp8, 2 with
// nccl, ratio (master + 4) (data ranks + 1) with topk.
double state_bytes(const ModelShape& shape, const MeshLayout& layout, const Config& config);

// Most bytes that a rank holds at once when it runs its list, the largest rank. `layers`: of each stage.
double peak_activation_bytes(const Schedule& schedule, const std::vector<Span>& layers, const ActivationBytes& bytes);

struct ScheduleCandidate {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int64_t stages_a_rank = 1;
  double seconds = 0;  // of one step's pipeline
  double bubble = 0;
  double peak_bytes = 0;
};

struct ScheduleChoice {
  ScheduleCandidate taken;
  std::vector<ScheduleCandidate> faster;  // shorter but too large, shortest first
  std::vector<ScheduleCandidate> slower;  // shortest first
  double memory_bytes = 0;
  bool fits = true;  // false: nothing did, the leanest was taken
};

// `shape` as the run has it. on_device: a CUDA device does the work. memory_bytes: of one rank, for activations. With
// train.distributed.pipeline_memory_bytes given, a limit that nothing fits is Error(kUsage); when the limit is what the machine has free,
// the leanest schedule is taken. Error(kUsage) too when pipeline_layers fits no kind.
ScheduleChoice choose_schedule(const ModelShape& shape, const MeshLayout& layout, const Config& config, bool on_device,
                               double memory_bytes);

// Two lines: what was taken, and why the next ones were not.
std::vector<std::string> describe_choice(const ScheduleChoice& choice);

}  // namespace plait
