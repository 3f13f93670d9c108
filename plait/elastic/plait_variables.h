// PLAIT_* variables: what `plait launch` tells its ranks, and what a user may say under any launcher.
#pragma once

#include "plait/elastic/environment.h"

namespace plait {

// Into `env`: PLAIT_BIND, PLAIT_RDZV_TIMEOUT (seconds), PLAIT_JOB_ID, PLAIT_LISTEN_FD (rank 0 only), PLAIT_STATUS_FD, PLAIT_LAUNCHER_FD,
// PLAIT_RESTART_COUNT, and the secret from PLAIT_SECRET_FD or PLAIT_SECRET_FILE (both set is an error). Throws Error(kUsage) that names
// the variable.
void read_plait_variables(const Variable& variable, RankEnvironment* env);

}  // namespace plait
