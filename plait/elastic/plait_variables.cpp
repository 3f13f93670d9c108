#include "plait/elastic/plait_variables.h"

#include "plait/rendezvous/secret.h"

namespace plait {

namespace {

using detail::filled;
using detail::given_number;
using detail::kMostRanks;

int descriptor(const Variable& variable, const std::string& name) {
  auto fd = given_number(variable, name, 0, kMostRanks, "an inherited descriptor");
  return fd ? static_cast<int>(fd->value) : -1;
}

}  // namespace

void read_plait_variables(const Variable& variable, RankEnvironment* env) {
  if (auto address = filled(variable, "PLAIT_BIND")) env->bind = *address;
  if (auto id = filled(variable, "PLAIT_JOB_ID")) env->job_id = *id;
  constexpr int64_t kWeek = 7 * 24 * 3600;
  if (auto seconds = given_number(variable, "PLAIT_RDZV_TIMEOUT", 1, kWeek, "seconds to wait for all ranks"))
    env->rendezvous_timeout = std::chrono::seconds(seconds->value);
  if (auto count = given_number(variable, "PLAIT_RESTART_COUNT", 0, kMostRanks, "restarts before this attempt"))
    env->restart_count = count->value;
  int listen_fd = descriptor(variable, "PLAIT_LISTEN_FD");
  if (env->listen) env->listen_fd = listen_fd;
  env->status_fd = descriptor(variable, "PLAIT_STATUS_FD");
  env->launcher_fd = descriptor(variable, "PLAIT_LAUNCHER_FD");
  int secret_fd = descriptor(variable, "PLAIT_SECRET_FD");
  auto secret_file = filled(variable, "PLAIT_SECRET_FILE");
  if (secret_fd >= 0 && secret_file)
    throw_error(ExitCode::kUsage, "PLAIT_SECRET_FD=", secret_fd, " contradicts PLAIT_SECRET_FILE=", *secret_file, ": give one of them");
  if (secret_fd >= 0) env->secret = rendezvous::read_secret_descriptor(secret_fd);
  if (secret_file) env->secret = rendezvous::read_secret_file(*secret_file);
}

}  // namespace plait
