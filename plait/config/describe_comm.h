// The part of the table of settings (describe.h) that is about messages and measuring.
#pragma once

#include "plait/config/config.h"
#include "plait/config/setting_info.h"

namespace plait::detail {

template <class Visitor, class C>
void describe_comm(Visitor& visit, C& c) {
  const std::string priority = "train.comm.priority.", compression = "train.comm.compression.";
  visit(
      SettingInfo{.name = "train.comm.backend",
                  .effect = "what carries messages: auto = nccl on CUDA devices, else shared memory between ranks of one machine and gloo "
                            "across machines; mpi: under mpirun or srun",
                  .words = {"auto", "shm", "gloo", "nccl", "mpi"}},
      c.backend);
  visit(SettingInfo{.name = priority + "tensor_parallel",
                    .effect = "p2p = rings of sends and receives in pieces, between the pieces of the products; collective = the backend's "
                              "collectives; auto = collective"},
        c.priority.tensor_parallel);
  visit(SettingInfo{.name = priority + "data_parallel", .effect = "the same for the gradients over the data ranks"},
        c.priority.data_parallel);
  visit(SettingInfo{.name = compression + "algorithm",
                    .effect = "of gradients over the data ranks: bf16, fp16, fp8, powersgd and topk with error feedback; nccl = 16-bit "
                              "messages through the backend's collective"},
        c.compression.algorithm);
  visit(SettingInfo{.name = compression + "threshold_bytes",
                    .effect = "gradient buckets smaller than this go as they are",
                    .unit = "bytes",
                    .range = counts(0),
                    .aliases = {compression + "threshold"}},
        c.compression.threshold_bytes);
  visit(SettingInfo{.name = compression + "rank", .effect = "powersgd: columns of the two factors of a matrix", .range = {1, 1024}},
        c.compression.rank);
  visit(SettingInfo{.name = compression + "ratio", .effect = "topk: share of the elements that is sent", .range = {0, 1, true, false}},
        c.compression.ratio);
  visit(SettingInfo{.name = compression + "pipeline", .effect = "type of activations and gradients on the way between pipeline stages"},
        c.compression.pipeline);
}

template <class Visitor, class C>
void describe_profile(Visitor& visit, C& c) {
  visit(SettingInfo{.name = "train.profile.trace_file",
                    .effect = "Chrome trace (Perfetto) of all ranks, written after its last step; empty = none",
                    .is_path = true},
        c.trace_file);
  visit(SettingInfo{.name = "train.profile.first_step", .effect = "first step in the trace", .unit = "steps", .range = counts(1)},
        c.first_step);
  visit(SettingInfo{.name = "train.profile.num_steps", .effect = "steps in the trace", .unit = "steps", .range = {1, 1000}}, c.num_steps);
  visit(SettingInfo{.name = "train.profile.mfu",
                    .effect = "measure this machine's rate of matrix products at the start (half a second) and report the share of it that "
                              "the model's own products reach (MFU)"},
        c.mfu);
}

}  // namespace plait::detail
