#include "plait/elastic/slurm.h"

#include <gtest/gtest.h>

#include "tests/elastic/launcher_cases.h"

namespace plait {
namespace {

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(NodeList, Expands) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"login", {"login"}},
      {"a,b", {"a", "b"}},
      {"n[1-3]", {"n1", "n2", "n3"}},
      {"n[1-3,07],gpu-[001-002]x[1-2],login", {"n1", "n2", "n3", "n07", "gpu-001x1", "gpu-001x2", "gpu-002x1", "gpu-002x2", "login"}},
      {"n[08-11]", {"n08", "n09", "n10", "n11"}},
      {"n[099-101]-ib", {"n099-ib", "n100-ib", "n101-ib"}},
      {"r[1-2]c[0-1]n[5]", {"r1c0n5", "r1c1n5", "r2c0n5", "r2c1n5"}},
      {"node-1-2.example.org", {"node-1-2.example.org"}},
      {"[1-2]", {"1", "2"}},
  };
  for (const auto& [list, names] : cases) EXPECT_EQ(expand_node_list(list), names) << list;
}

TEST(NodeList, RefusesWhatIsNone) {
  for (const char* list : {"", "a,", ",a", "n[1-3", "n1-3]", "n[]", "n[1-]", "n[-3]", "n[3-1]", "n[a-b]", "n[1-2-3]", "n[[1]]", "n[1,,2]",
                           "n[1-99999999]", "n[1-9999999999999999999]", "n[1-2000]x[1-2000]", "n[1 -2]"}) {
    std::string message = error_of([&] { expand_node_list(list, "SLURM_NODELIST"); });
    EXPECT_NE(message.find("SLURM_NODELIST"), std::string::npos) << list << ": " << message;
  }
}

TEST(TasksPerNode, Expands) {
  EXPECT_EQ(expand_tasks_per_node("4(x2),3"), (std::vector<int64_t>{4, 4, 3}));
  EXPECT_EQ(expand_tasks_per_node("1"), (std::vector<int64_t>{1}));
  EXPECT_EQ(expand_tasks_per_node("2,1(x3),5"), (std::vector<int64_t>{2, 1, 1, 1, 5}));
  for (const char* text : {"", "4(", "4(x", "4(x2", "4x2", "4(2)", "4(x)", "4(x0)", "4(x9999999)", "(x2)", "4,", "-1", "a", "4)x2("})
    EXPECT_NE(error_of([&] { expand_tasks_per_node(text); }).find("SLURM_STEP_TASKS_PER_NODE"), std::string::npos) << text;
}

TEST(SlurmStep, TaskOfSeveralNodes) {
  auto env = read_launcher_environment(lookup(slurm_task()));
  ASSERT_TRUE(env);
  EXPECT_EQ(env->launcher, "Slurm");
  EXPECT_EQ(env->rank, 9);
  EXPECT_EQ(env->world_size, 11);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 3);
  EXPECT_EQ(env->node_rank, 2);
  EXPECT_EQ(env->master_addr, "n07");  // not SLURM_LAUNCH_NODE_IPADDR
  EXPECT_GE(env->master_port, 15000);
  EXPECT_LT(env->master_port, 30000);
  EXPECT_EQ(env->job_id, "slurm-4711.2");
  EXPECT_FALSE(env->listen);
  EXPECT_FALSE(env->foreign_store);
}

TEST(SlurmStep, PortFollowsFromJobAndStepAlone) {
  auto port = [](const char* job, const char* step, const char* task) {
    auto v = slurm_task();
    v["SLURM_JOB_ID"] = job;
    v["SLURM_STEP_ID"] = step;
    v["SLURM_PROCID"] = task;
    v["SLURM_LOCALID"] = "0";
    return read_launcher_environment(lookup(v))->master_port;
  };
  EXPECT_EQ(port("4711", "2", "0"), port("4711", "2", "9"));
  EXPECT_NE(port("4711", "2", "0"), port("4711", "3", "0"));
  EXPECT_NE(port("4711", "2", "0"), port("4712", "2", "0"));
}

TEST(SlurmStep, OneNodeMeetsOnLoopback) {
  auto v = slurm_task();
  v["SLURM_STEP_NODELIST"] = "n07";
  v["SLURM_STEP_TASKS_PER_NODE"] = "11";
  v["SLURM_NODEID"] = "0";
  v["SLURM_LOCALID"] = "9";
  auto env = read_launcher_environment(lookup(v));
  EXPECT_EQ(env->master_addr, "127.0.0.1");
  EXPECT_EQ(env->local_world_size, 11);
}

TEST(SlurmStep, WrittenAddressAndPortWin) {
  auto v = slurm_task();
  v["MASTER_ADDR"] = "10.1.1.1";
  v["MASTER_PORT"] = "4000";
  v["WORLD_SIZE"] = "11";  // as many batch scripts export
  auto env = read_launcher_environment(lookup(v));
  EXPECT_EQ(env->master_addr, "10.1.1.1");
  EXPECT_EQ(env->master_port, 4000);
  EXPECT_EQ(env->rank, 9);
}

TEST(SlurmStep, NoTaskNoLauncher) {
  Variables batch{{"SLURM_JOB_ID", "4711"},     {"SLURM_PROCID", "0"},
                  {"SLURM_LOCALID", "0"},       {"SLURM_NODEID", "0"},
                  {"SLURM_NTASKS", "8"},        {"SLURM_NPROCS", "8"},
                  {"SLURM_NNODES", "2"},        {"SLURM_JOB_NODELIST", "n[1-2]"},
                  {"SLURM_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "4(x2)"},
                  {"SLURM_GTIDS", "0"}};
  EXPECT_FALSE(read_launcher_environment(lookup(batch))) << "an sbatch script";
  Variables shell = batch;
  shell["SLURM_STEP_ID"] = "4294967290";
  shell["SLURM_STEP_NUM_TASKS"] = "1";
  shell["SLURM_STEP_NODELIST"] = "n1";
  shell["SLURM_STEP_TASKS_PER_NODE"] = "1";
  EXPECT_FALSE(read_launcher_environment(lookup(shell))) << "the shell of salloc, srun --pty bash, srun -n 1";
  Variables salloc{{"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "8"}, {"SLURM_NODELIST", "n[1-2]"}};
  EXPECT_FALSE(read_launcher_environment(lookup(salloc))) << "salloc on the login node";
}

TEST(SlurmStep, Contradictions) {
  struct Case {
    const char* name;
    const char* value;
    std::vector<const char*> fragments;
  };
  for (const Case& c : std::vector<Case>{
           {"WORLD_SIZE", "4", {"WORLD_SIZE=4", "SLURM_STEP_NUM_TASKS=11"}},
           {"RANK", "3", {"RANK=3", "SLURM_PROCID=9"}},
           {"LOCAL_RANK", "0", {"LOCAL_RANK=0", "SLURM_LOCALID=1"}},
           {"SLURM_PROCID", "11", {"SLURM_PROCID=11", "SLURM_STEP_NUM_TASKS=11"}},
           {"SLURM_LOCALID", "3", {"SLURM_LOCALID=3", "SLURM_STEP_TASKS_PER_NODE=3"}},
           {"SLURM_NODEID", "3", {"SLURM_NODEID=3", "SLURM_STEP_TASKS_PER_NODE=4(x2),3"}},
           {"SLURM_STEP_TASKS_PER_NODE", "4(x3)", {"SLURM_STEP_TASKS_PER_NODE=4(x3)", "12", "SLURM_STEP_NUM_TASKS says 11"}},
           {"SLURM_STEP_NUM_TASKS", "eleven", {"SLURM_STEP_NUM_TASKS=eleven"}},
           {"SLURM_STEP_NODELIST", "n[07", {"SLURM_STEP_NODELIST=n[07"}},
           {"SLURM_LOCALID", "", {"SLURM_LOCALID is not set"}},
           {"MASTER_PORT", "70000", {"MASTER_PORT=70000"}},
       }) {
    auto v = slurm_task();
    v[c.name] = c.value;
    std::string message = error_of([&] { read_launcher_environment(lookup(v)); });
    for (const char* fragment : c.fragments)
      EXPECT_NE(message.find(fragment), std::string::npos) << c.name << "=" << c.value << ": " << message;
  }
}

}  // namespace
}  // namespace plait
