#include "plait/elastic/mpi_environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/elastic/launcher_cases.h"

namespace plait {
namespace {

std::optional<RankEnvironment> read(const Variables& v, const std::string& ancestor = "hydra_-77-1") {
  return read_launcher_environment(lookup(v), [ancestor](const std::string&) { return ancestor; });
}

std::string message_of(const Variables& v) {
  try {
    read(v);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

void expect_fragments(const Variables& v, const std::vector<const char*>& fragments) {
  std::string message = message_of(v);
  for (const char* fragment : fragments) EXPECT_NE(message.find(fragment), std::string::npos) << fragment << " in: " << message;
}

Variables with(Variables v, const Variables& more) {
  for (const auto& [name, value] : more) v[name] = value;
  return v;
}

Variables without(Variables v, const std::string& name) {
  v.erase(name);
  return v;
}

TEST(OpenMpi, SeveralNodes) {
  auto env = read(openmpi_rank());
  ASSERT_TRUE(env);
  EXPECT_EQ(env->launcher, "OpenMPI");
  EXPECT_EQ(env->rank, 3);
  EXPECT_EQ(env->world_size, 4);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 2);
  EXPECT_EQ(env->master_addr, "192.0.2.2");
  EXPECT_EQ(env->job_id, "openmpi-1315504129");
  ASSERT_EQ(env->notices.size(), 1u);
  EXPECT_NE(env->notices[0].find("192.0.2.2"), std::string::npos);
}

TEST(OpenMpi, OneNodeMeetsOnLoopbackAndJobsDiffer) {
  auto one = with(openmpi_rank(), {{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  auto env = read(one);
  EXPECT_EQ(env->master_addr, "127.0.0.1");
  EXPECT_TRUE(env->notices.empty());
  EXPECT_NE(env->master_port, read(with(one, {{"OMPI_MCA_ess_base_jobid", "1315504130"}}))->master_port);
  EXPECT_EQ(env->master_port, read(with(one, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}))->master_port);
}

TEST(OpenMpi, Version5NamesItsHost) {
  auto v = without(without(openmpi_rank(), "OMPI_MCA_orte_hnp_uri"), "OMPI_MCA_ess_base_jobid");
  v["PMIX_NAMESPACE"] = "prterun-node-12-8855@1";
  auto env = read(v);
  EXPECT_EQ(env->master_addr, "node-12");
  EXPECT_EQ(env->job_id, "openmpi-prterun-node-12-8855@1");
  v["PMIX_NAMESPACE"] = "1315504129";
  expect_fragments(v, {"MASTER_ADDR is not set", "OMPI_COMM_WORLD_RANK"});
}

TEST(OpenMpi, WrittenAddressWinsWithoutNotice) {
  auto env = read(with(openmpi_rank(), {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(env->master_addr, "head");
  EXPECT_EQ(env->master_port, 4000);
  EXPECT_TRUE(env->notices.empty());
}

TEST(OpenMpi, OneRankIsNoLauncher) {
  EXPECT_FALSE(read({{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
}

TEST(OpenMpi, ContradictionsNameBoth) {
  expect_fragments(with(openmpi_rank(), {{"OMPI_COMM_WORLD_RANK", "4"}}), {"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=4"});
  expect_fragments(with(openmpi_rank(), {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}),
                   {"OMPI_COMM_WORLD_LOCAL_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"});
  expect_fragments(with(openmpi_rank(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "9"}}), {"OMPI_COMM_WORLD_LOCAL_SIZE=9", "OMPI_COMM_WORLD_SIZE=4"});
  expect_fragments(with(openmpi_rank(), {{"WORLD_SIZE", "8"}}), {"WORLD_SIZE=8", "OMPI_COMM_WORLD_SIZE=4"});
  expect_fragments(with(openmpi_rank(), {{"RANK", "0"}}), {"RANK=0", "OMPI_COMM_WORLD_RANK=3"});
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"})
    expect_fragments(without(openmpi_rank(), name), {name, "is not set"});
}

TEST(OpenMpi, ContactAddress) {
  EXPECT_EQ(detail::contact_address("1.0;tcp://10.0.0.1:5"), "10.0.0.1");
  EXPECT_EQ(detail::contact_address("1.0;tcp://127.0.0.1,127.0.1.1:5;tcp6://[::1,fd00::2]:37529"), "fd00::2");
  EXPECT_EQ(detail::contact_address("1.0;tcp://127.0.0.1:5"), "");
  EXPECT_EQ(detail::contact_address("1.0;usock"), "");
  EXPECT_EQ(detail::contact_address(""), "");
}

TEST(Nested, TheInnerOneCountsAndANoticeSaysSo) {
  // mpirun inside an allocation starts its daemons with srun, one a node: the ranks see a step of two tasks.
  auto slurm = slurm_task();
  auto env = read(with(slurm, openmpi_rank()));
  EXPECT_EQ(env->launcher, "OpenMPI");
  EXPECT_EQ(env->rank, 3);
  ASSERT_GE(env->notices.size(), 1u);
  EXPECT_NE(env->notices[0].find("OMPI_COMM_WORLD_SIZE=4, not SLURM_STEP_NUM_TASKS=11"), std::string::npos) << env->notices[0];

  // srun --mpi=pmi2 sets PMI_* for its own tasks: that is Slurm, with its list of nodes.
  env = read(with(slurm, {{"PMI_RANK", "9"}, {"PMI_SIZE", "11"}}));
  EXPECT_EQ(env->launcher, "Slurm");
  EXPECT_EQ(env->master_addr, "n07");
  EXPECT_TRUE(env->notices.empty());

  // Also where both count alike on this rank: on another one they may not.
  slurm["SLURM_PROCID"] = "9";
  env = read(with(slurm, {{"PMI_RANK", "9"}, {"PMI_SIZE", "11"}, {"MPI_LOCALRANKID", "9"}, {"MPI_LOCALNRANKS", "11"}}));
  EXPECT_EQ(env->launcher, "MPICH");

  env = read(with(slurm, torchrun_rank()));
  EXPECT_EQ(env->launcher, "torchrun");
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->master_addr, "n0.x");
  EXPECT_TRUE(env->foreign_store);
  ASSERT_EQ(env->notices.size(), 1u);
  EXPECT_NE(env->notices[0].find("torchrun runs inside Slurm"), std::string::npos) << env->notices[0];
}

TEST(Pmi, OneNode) {
  auto env = read(mpich_rank());
  ASSERT_TRUE(env);
  EXPECT_EQ(env->launcher, "MPICH");
  EXPECT_EQ(env->rank, 1);
  EXPECT_EQ(env->world_size, 4);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 4);
  EXPECT_EQ(env->master_addr, "127.0.0.1");
  EXPECT_EQ(env->master_port, read(mpich_rank())->master_port);
  EXPECT_NE(env->master_port, read(mpich_rank(), "hydra_-78-1")->master_port);
  EXPECT_FALSE(read({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}}));
}

TEST(Pmi, SeveralNodesNeedAnAddress) {
  auto v = with(mpich_rank(), {{"MPI_LOCALNRANKS", "2"}});
  expect_fragments(v, {"MASTER_ADDR is not set", "PMI_RANK", "-genv MASTER_ADDR"});
  v["MASTER_ADDR"] = "n0";
  expect_fragments(v, {"MASTER_PORT is not set", "-genv"});
  v["MASTER_PORT"] = "29500";
  auto env = read(v);
  EXPECT_EQ(env->master_addr, "n0");
  v["PMI_PORT"] = "n1:4000";  // of this node's proxy: the other node's says something else
  EXPECT_EQ(read(v)->job_id, "");
}

TEST(Pmi, Contradictions) {
  expect_fragments(with(mpich_rank(), {{"PMI_RANK", "4"}}), {"PMI_RANK=4", "PMI_SIZE=4"});
  expect_fragments(with(mpich_rank(), {{"MPI_LOCALRANKID", "4"}}), {"MPI_LOCALRANKID=4", "MPI_LOCALNRANKS=4"});
  expect_fragments(without(mpich_rank(), "MPI_LOCALRANKID"), {"MPI_LOCALRANKID is not set"});
}

TEST(LaunchingAncestor, FindsThisProcessesParent) {
  std::string comm;
  std::getline(std::ifstream(cat("/proc/", static_cast<int64_t>(::getppid()), "/comm")), comm);
  std::string found = launching_ancestor(comm);
  EXPECT_TRUE(found.starts_with(cat(comm, "-", static_cast<int64_t>(::getppid()), "-"))) << found;
  EXPECT_EQ(launching_ancestor("no such process name"), "");
}

}  // namespace
}  // namespace plait
