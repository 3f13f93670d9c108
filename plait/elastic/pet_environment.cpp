#include "plait/elastic/pet_environment.h"

#include <algorithm>
#include <cctype>

#include "plait/rendezvous/address.h"

namespace plait {

namespace {

using detail::filled;

// Ranks a node of PET_NPROC_PER_NODE; 1 for words (auto, cpu, gpu), which do not enter WORLD_SIZE.
int64_t ranks_a_node(const Variable& variable) {
  std::string text = filled(variable, "PET_NPROC_PER_NODE").value_or("1");
  bool digits = text.size() < 8 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  return digits ? std::max<int64_t>(1, std::stoll(text)) : 1;
}

}  // namespace

void refuse_pet_without_launch(const Variable& variable) {
  auto nodes = filled(variable, "PET_NNODES");
  if (!nodes || filled(variable, "LOCAL_RANK")) return;
  int64_t ranks = ranks_a_node(variable);
  bool pod_rank = filled(variable, "RANK") && filled(variable, "WORLD_SIZE");
  // The v1 operator multiplies: WORLD_SIZE = pods x ranks a pod, but RANK stays the pod's.
  if (pod_rank && (ranks == 1 || *variable("WORLD_SIZE") == *nodes)) return;
  if (*nodes == "1" || *nodes == "1:1") {
    if (!pod_rank) return;
    throw_error(ExitCode::kUsage, "WORLD_SIZE=", *variable("WORLD_SIZE"), " counts the ", ranks, " ranks of PET_NPROC_PER_NODE=", ranks,
                ", but RANK is the pod's and nobody started the ranks. Start them with: plait launch -- plait train ... (it reads the PET_ "
                "variables)");
  }
  throw_error(
      ExitCode::kUsage, "PET_NNODES=", *nodes, " says that this is one of several nodes, but no launcher started the ranks",
      pod_rank ? cat(" (RANK=", *variable("RANK"), " is the pod's, WORLD_SIZE=", *variable("WORLD_SIZE"), " counts ranks)") : "",
      ". Start them on every node with: plait launch --secret_file=FILE -- plait train ... (it reads the PET_ variables for --nnodes, "
      "--nproc_per_node, --node_rank, --master_addr, --master_port; FILE is a secret that all nodes share, docs/launchers.md)");
}

bool is_one_rank_a_node(const Variable& variable) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    if (!filled(variable, name)) return false;
  if (variable("LOCAL_RANK")) return false;
  if (auto local = filled(variable, "LOCAL_WORLD_SIZE"); local && *local != "1") return false;
  // The v1 operator tells the first pod that the master is localhost.
  bool first_pod = *variable("RANK") == "0" && filled(variable, "KUBERNETES_SERVICE_HOST");
  return first_pod || !rendezvous::is_loopback_host(*variable("MASTER_ADDR"));
}

void check_ranks_of_pods(const RankEnvironment& env, int64_t layout_ranks) {
  if (!env.one_rank_a_node || layout_ranks <= env.world_size) return;
  int64_t ranks = layout_ranks / env.world_size;
  bool whole = ranks * env.world_size == layout_ranks;
  throw_error(ExitCode::kUsage, "the settings ask for ", layout_ranks, " ranks, but RANK=", env.rank, " and WORLD_SIZE=", env.world_size,
              " without LOCAL_RANK (as Kubeflow's PyTorchJob sets them) mean one rank on each of ", env.world_size, " nodes. ",
              whole ? cat("For ", ranks,
                          " ranks a node run, on every node: plait launch --nnodes=$WORLD_SIZE --node_rank=$RANK "
                          "--master_addr=$MASTER_ADDR --master_port=$MASTER_PORT --nproc_per_node=",
                          ranks, " --secret_file=FILE -- plait train ... (FILE: a secret that all nodes share, docs/launchers.md)")
                    : cat(layout_ranks, " ranks do not split evenly over them; nearest number that does: ",
                          (ranks + (2 * (layout_ranks % env.world_size) >= env.world_size)) * env.world_size));
}

}  // namespace plait
