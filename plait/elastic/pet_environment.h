// Kubeflow: variables that the training operators set in a pod. PET_* (Trainer v2, newer v1) are torchrun's flags, so `plait launch`
// takes them for flags that are not given; a v1 PyTorchJob sets RANK (the POD's) and WORLD_SIZE without LOCAL_RANK. Pure functions.
#pragma once

#include "plait/elastic/environment.h"
#include "plait/elastic/launcher_variables.h"

namespace plait {

// PET_* says that several processes make up the job and nobody has started them (no RANK of a launcher's): Error(kUsage) with the
// `plait launch` command. Nothing otherwise.
void refuse_pet_without_launch(const Variable& variable);

// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and no LOCAL_RANK, with an address that other machines can reach (or inside Kubernetes): a
// pod or node is one rank.
bool is_one_rank_a_node(const Variable& variable);

// Throws Error(kUsage) with the `plait launch` command when `environment` is one rank a pod and the settings ask for more ranks than
// there are pods.
void check_ranks_of_pods(const RankEnvironment& environment, int64_t layout_ranks);

}  // namespace plait
