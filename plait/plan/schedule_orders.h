// The orders of computation behind make_schedule: forwards and backwards of each pipeline rank, without messages.
// insert_messages() then adds sends and receives by one rule for all kinds.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/plan/schedule.h"

namespace plait::detail {

using ComputeOrders = std::vector<std::vector<Action>>;  // [pp_rank]

// All forwards, then all backwards, one stage a rank (GPipe, arXiv 1811.06965).
ComputeOrders gpipe_order(int64_t pp_size, int64_t num_micro_batches);

// One forward, one backward: rank r starts with min(m, pp_size - 1 - r) forwards, then alternates (PipeDream-flush,
// arXiv 2104.04473 section 2.2.1). At most min(m, pp_size - r) micro-batches are in flight on rank r.
ComputeOrders one_f_one_b_order(int64_t pp_size, int64_t num_micro_batches);

// Interleaved 1F1B with `chunks` stages a rank (arXiv 2104.04473 section 2.2.2). Micro-batches go in rounds of pp_size; a shorter
// last round is the full round with the missing micro-batches left out, which keeps every dependency.
ComputeOrders interleaved_order(int64_t pp_size, int64_t chunks, int64_t num_micro_batches);
int64_t interleaved_in_flight(int64_t pp_size, int64_t chunks, int64_t num_micro_batches, int64_t rank);

// Zero bubble (arXiv 2401.10241, its greedy rule with F, B and W of one length): a backward is split into B, the gradient of the input,
// which the previous stage waits for, and W, the weight gradient, which nobody waits for and which fills the gaps. A rank takes B before
// F before W. H1 holds as many forwards as 1F1B; H2 (`fill_warm_up`) up to 2 (pp_size - r) - 1, which fills the warm-up too. Inputs and
// gradients that a W still needs: of at most pp_size (H2: 2 pp_size - 1) micro-batches.
ComputeOrders zero_bubble_order(int64_t pp_size, int64_t num_micro_batches, bool fill_warm_up);
int64_t zero_bubble_in_flight(int64_t pp_size, int64_t num_micro_batches, int64_t rank, bool fill_warm_up);

// Zero bubble on a V (arXiv 2401.10241, section 6): rank r holds stages r and 2 pp_size - 1 - r, so the last stage's loss is where the
// first stage is and the ramp of the cool-down is filled too; with F, B and W of one length no rank idles between its first and last
// action once there are 2 pp_size micro-batches. At most 2 pp_size stage inputs (of half a rank's layers each) are in flight on every
// rank: 1F1B's memory on its first rank. Fewer micro-batches than the warm-up needs: those missing are left out of the full order.
ComputeOrders zero_bubble_v_order(int64_t pp_size, int64_t num_micro_batches);
int64_t zero_bubble_v_in_flight(int64_t pp_size, int64_t num_micro_batches);

// Forwards only for stages that lie anywhere: each rank takes the deepest stage that has its input.
ComputeOrders placed_forward_order(int64_t pp_size, const std::vector<int64_t>& stage_ranks, int64_t num_micro_batches);

// Forwards only, in the interleaved order.
ComputeOrders forward_order(int64_t pp_size, int64_t chunks, int64_t num_micro_batches);

// One step of the interleaved order: position `index` of rank `rank` in a schedule of whole rounds.
Action interleaved_step(int64_t pp_size, int64_t chunks, int64_t rank, int64_t index, ActionKind kind);

// Fills schedule.actions from `orders`: a send directly after the production, a receive directly before the use. A message that
// was sent earlier on the same pair and direction is received first, so that both ends agree on the order; it was sent earlier,
// hence receiving it costs no waiting that the later one would not.
void insert_messages(Schedule& schedule, const ComputeOrders& orders);

// The message behind a computation on `stage`: kSendForward of stage 2 is matched by kRecvForward of stage 3.
Action matching_receive(const Action& send);
Action matching_send(const Action& receive);

}  // namespace plait::detail
