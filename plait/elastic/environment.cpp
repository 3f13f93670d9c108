#include "plait/elastic/environment.h"

#include <cstdlib>

#include "plait/base/text.h"
#include "plait/elastic/mpi_environment.h"
#include "plait/elastic/pet_environment.h"
#include "plait/elastic/plait_variables.h"
#include "plait/elastic/slurm.h"

namespace plait {

namespace {

using detail::filled;
using detail::Given;
using detail::given_number;
using detail::kMostRanks;
using detail::LauncherView;
using detail::said;

constexpr const char* kTogether =
    "a launcher sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT together; unset them all to let plait start its own ranks";

[[noreturn]] void missing(const Variable& variable, const std::string& name, const std::string& because, const std::string& remedy) {
  throw_error(ExitCode::kUsage, "the environment variable ", name, " is ", variable(name) ? "empty" : "not set", ", but ", because, ": ",
              remedy);
}

// RANK, WORLD_SIZE and LOCAL_RANK of the variables that all torch programs read; what is not set is filled from `view` where there is one.
class TorchVariables {
 public:
  TorchVariables(const Variable& variable, const LauncherView* view) : variable_(variable), view_(view) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"})
      if (first_.empty() && filled(variable, name)) first_ = name;
  }
  bool any() const { return !first_.empty(); }
  const std::string& first() const { return first_; }

  void read(RankEnvironment* env) const {
    env->world_size = number("WORLD_SIZE", 1, kMostRanks, "the number of ranks", view_ ? &view_->world_size : nullptr);
    env->rank = number("RANK", 0, env->world_size - 1, cat("below WORLD_SIZE ", env->world_size), view_ ? &view_->rank : nullptr);
    env->one_rank_a_node = !view_ && is_one_rank_a_node(variable_);
    if (env->one_rank_a_node) return;
    env->local_world_size = view_ ? view_->local_world_size.value : env->world_size;
    if (filled(variable_, "LOCAL_WORLD_SIZE"))
      env->local_world_size = number("LOCAL_WORLD_SIZE", 1, env->world_size, cat("at most WORLD_SIZE ", env->world_size), nullptr);
    if (env->world_size == 1 && !view_ && !filled(variable_, "LOCAL_RANK")) return;  // the one rank of a job is the first of its node
    env->local_rank = number("LOCAL_RANK", 0, env->local_world_size - 1,
                             cat("below the number of ranks on this node, ", env->local_world_size), view_ ? &view_->local_rank : nullptr);
    if (env->local_rank > env->rank)
      throw_error(ExitCode::kUsage, "LOCAL_RANK=", env->local_rank, " contradicts RANK=", env->rank,
                  ": the ranks before this one on its node are also before it in the job, so RANK is at least LOCAL_RANK");
    for (const char* name : {"GROUP_RANK", "NODE_RANK"})
      if (auto node = given_number(variable_, name, 0, env->world_size - 1, "the node's number")) {
        env->node_rank = node->value;
        return;
      }
    if (view_) env->node_rank = view_->node_rank;
  }

 private:
  int64_t number(const std::string& name, int64_t least, int64_t most, const std::string& rule, const Given* fallback) const {
    if (auto given = given_number(variable_, name, least, most, rule)) {
      if (fallback && fallback->value != given->value)
        throw_error(ExitCode::kUsage, name, "=", given->value, " contradicts ", said(*fallback), " of ", view_->launcher, ": unset ", name,
                    " to take ", view_->launcher, "'s, or start as many ranks as ", name, " says");
      return given->value;
    }
    if (fallback) return fallback->value;
    missing(variable_, name, cat(first_, " is set"), kTogether);
  }

  const Variable& variable_;
  const LauncherView* view_;
  std::string first_;
};

// Slurm's step, or an MPI launcher's ranks where one runs (inside the step or without one).
std::optional<LauncherView> launcher_view(const Variable& variable, const std::function<std::string(const std::string&)>& ancestor,
                                          std::vector<std::string>* notices) {
  auto slurm = detail::read_slurm_step(variable);
  auto mpi = detail::read_openmpi(variable);
  // `srun --mpi=pmi2` sets PMI_RANK and PMI_SIZE for its own tasks; MPI_LOCALRANKID is Hydra's.
  if (!mpi && (!slurm || filled(variable, "MPI_LOCALRANKID"))) mpi = detail::read_pmi(variable, ancestor);
  if (!slurm || !mpi) return slurm ? slurm : mpi;
  if (slurm->world_size.value > 1)
    notices->push_back(cat(mpi->launcher, " runs inside a Slurm job step: the inner one counts (", said(mpi->world_size), ", not ",
                           said(slurm->world_size), ")"));
  return mpi;
}

void set_address(const Variable& variable, const LauncherView* view, const std::string& because, RankEnvironment* env) {
  if (env->world_size == 1) return;
  std::string remedy = view ? view->address_hint.empty() ? "no address follows from the launcher" : view->address_hint : kTogether;
  auto address = filled(variable, "MASTER_ADDR");
  if (address) env->master_addr = *address;
  else if (view && !view->master_addr.empty()) env->master_addr = view->master_addr;
  else missing(variable, "MASTER_ADDR", because, remedy);
  if (!address && view && !view->address_hint.empty()) env->notices.push_back(view->address_hint);
  if (auto port = given_number(variable, "MASTER_PORT", 1, 65535, "a TCP port")) env->master_port = static_cast<int>(port->value);
  else if (view && view->master_port > 0) env->master_port = view->master_port;
  else missing(variable, "MASTER_PORT", because, remedy);
}

void note_one_rank_a_node(RankEnvironment* env) {
  env->launcher = "Kubeflow";
  env->notices.push_back(cat("RANK=", env->rank, " and WORLD_SIZE=", env->world_size, " without LOCAL_RANK: taken as one rank on each of ",
                             env->world_size, " nodes"));
  // The operator tells the first pod "localhost", its peers the pod's name.
  const std::string& address = env->master_addr;
  if (env->rank == 0 && (address == "localhost" || address == "::1" || address.starts_with("127."))) {
    env->bind = "0.0.0.0";
    env->notices.push_back(
        cat("MASTER_ADDR=", address, " is the first pod's own name for itself: it listens on all its addresses (PLAIT_BIND chooses one)"));
  }
}

std::string torch_launcher(const Variable& variable) {
  if (auto name = filled(variable, "PLAIT_LAUNCHER")) return *name;
  return variable("TORCHELASTIC_RUN_ID") || variable("TORCHELASTIC_USE_AGENT_STORE") ? "torchrun" : "variables";
}

}  // namespace

std::optional<std::string> process_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<RankEnvironment> read_launcher_environment(const Variable& variable,
                                                         const std::function<std::string(const std::string&)>& ancestor) {
  refuse_pet_without_launch(variable);
  RankEnvironment env;
  env.launcher = torch_launcher(variable);
  auto view = launcher_view(variable, ancestor ? ancestor : launching_ancestor, &env.notices);
  if (view && view->world_size.value == 1) view.reset();
  if (view && env.launcher != "variables" && filled(variable, "RANK")) {
    // srun or mpirun started a launcher on each node, and that one started us.
    env.notices.push_back(cat(env.launcher, " runs inside ", view->launcher, ": the inner one counts (WORLD_SIZE=",
                              variable("WORLD_SIZE").value_or(""), ", not ", said(view->world_size), ")"));
    view.reset();
  }

  const LauncherView* outer = view ? &*view : nullptr;
  TorchVariables plain(variable, outer);
  if (!plain.any() && !view) return std::nullopt;
  if (view) {
    env.launcher = view->launcher;
    env.job_id = view->job_id;
  }
  plain.read(&env);
  // One pod is the whole job: it starts its own ranks.
  if (env.one_rank_a_node && env.world_size == 1) return std::nullopt;
  set_address(variable, outer, cat(plain.any() ? plain.first() : view->rank.name, " is set"), &env);
  if (env.one_rank_a_node) note_one_rank_a_node(&env);

  if (auto id = filled(variable, "TORCHELASTIC_RUN_ID"); id && !view && *id != "none") env.job_id = *id;
  if (auto count = given_number(variable, "TORCHELASTIC_RESTART_COUNT", 0, kMostRanks, "the launcher's restarts before this attempt"))
    env.restart_count = count->value;
  // The torch launcher keeps the store itself; it writes str(bool).
  env.foreign_store = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  env.listen = env.rank == 0 && env.world_size > 1 && !env.foreign_store;
  read_plait_variables(variable, &env);
  return env;
}

}  // namespace plait
