#include "plait/elastic/launch_flags.h"

#include <gtest/gtest.h>

#include <map>

namespace plait {
namespace {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

LaunchCommand read(Words words, Variables variables = {}, MachineCounts machine = {6, 2}) {
  return read_launch_command(
      words,
      [variables](const std::string& name) {
        auto it = variables.find(name);
        return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
      },
      machine);
}

std::string refusal(Words words, Variables variables = {}, ExitCode code = ExitCode::kUsage, MachineCounts machine = {6, 2}) {
  try {
    read(words, variables, machine);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

void expect_refusal(const Words& words, const std::string& part, ExitCode code = ExitCode::kUsage) {
  EXPECT_NE(refusal(words, {}, code).find(part), std::string::npos) << refusal(words, {}, code) << "\nlacks: " << part;
}

TEST(LaunchFlags, Defaults) {
  auto command = read({"plait", "train", "x.yaml", "--nproc_per_node", "7"});
  EXPECT_EQ(command.nproc_per_node, 1);
  EXPECT_EQ(command.num_nodes, 1);
  EXPECT_EQ(command.master_addr, "127.0.0.1");
  EXPECT_EQ(command.master_port, 0);
  EXPECT_EQ(command.rendezvous_timeout, std::chrono::seconds(600));
  EXPECT_EQ(command.program, (Words{"plait", "train", "x.yaml", "--nproc_per_node", "7"})) << "flags behind the program are its own";
  EXPECT_TRUE(command.notices.empty());
}

TEST(LaunchFlags, BothSpellingsBothForms) {
  for (const Words& words :
       {Words{"--nproc-per-node=4", "--max-restarts", "2", "--", "x"}, Words{"--nproc_per_node", "4", "--max_restarts=2", "x"}}) {
    auto command = read(words);
    EXPECT_EQ(command.nproc_per_node, 4);
    EXPECT_EQ(command.max_restarts, 2);
    EXPECT_EQ(command.program, Words{"x"});
  }
  EXPECT_EQ(read({"--", "--odd-name", "--", "y"}).program, (Words{"--odd-name", "--", "y"}));
}

TEST(LaunchFlags, RanksOfThisMachine) {
  EXPECT_EQ(read({"--nproc_per_node=cpu", "x"}).nproc_per_node, 6);
  EXPECT_EQ(read({"--nproc_per_node=gpu", "x"}).nproc_per_node, 2);
  EXPECT_EQ(read({"--nproc_per_node=auto", "x"}).nproc_per_node, 2);
  EXPECT_EQ(read({"--nproc_per_node=auto", "x"}, {}, {6, 0}).nproc_per_node, 6);
  EXPECT_NE(refusal({"--nproc_per_node=gpu", "x"}, {}, ExitCode::kResource, {6, 0}).find("no CUDA device"), std::string::npos);
  for (const char* wrong : {"0", "-1", "2.0", "many", "99999", "4 "})
    expect_refusal({"--nproc_per_node", wrong, "x"}, cat("--nproc_per_node ", wrong, ": must be the number of ranks on this node"));
}

TEST(LaunchFlags, SeveralNodes) {
  auto command = read({"--nnodes=2", "--node_rank=1", "--master_addr=node0", "--nproc_per_node=8", "x"});
  EXPECT_EQ(command.num_nodes, 2);
  EXPECT_EQ(command.node_rank, 1);
  EXPECT_EQ(command.master_port, 29500);
  EXPECT_TRUE(read({"--nnodes=1:1", "x"}).notices.empty());
  command = read({"--nnodes=1:3", "--node_rank=2", "--rdzv_endpoint=node0:29400", "x"});
  EXPECT_EQ(command.num_nodes, 3);
  ASSERT_EQ(command.notices.size(), 1u);
  EXPECT_NE(command.notices[0].find("3 nodes are used"), std::string::npos);
  expect_refusal({"--nnodes=3:2", "x"}, "MIN is above MAX");
  expect_refusal({"--nnodes=2", "--node_rank=2", "x"}, "--node_rank 2: must be below the number of nodes, 2, from 0 to 1");
  expect_refusal({"--nnodes=2", "--master_addr=a", "x"}, "--node_rank is not given");
  expect_refusal({"--nnodes=2", "--node_rank=0", "x"}, "--master_addr is not given");
  expect_refusal({"--nnodes=2", "--node_rank=0", "--standalone", "x"}, "--standalone is for one node");
  expect_refusal({"--nnodes=2", "--node_rank=0", "--master_addr=a", "--max_restarts=1", "x"}, "nearest valid value 0");
}

TEST(LaunchFlags, Endpoints) {
  struct Case {
    const char *text, *address;
    int port;
  };
  for (const Case& c : {Case{"node0:29400", "node0", 29400}, Case{"node0", "node0", 29500}, Case{"10.0.0.1:1", "10.0.0.1", 1},
                        Case{"[fe80::1]:29400", "[fe80::1]", 29400}, Case{"[::1]", "[::1]", 29500}, Case{"::1", "::1", 29500}}) {
    auto command = read({"--nnodes=2", "--node_rank=0", "--rdzv-endpoint", c.text, "x"});
    EXPECT_EQ(command.master_addr, c.address) << c.text;
    EXPECT_EQ(command.master_port, c.port) << c.text;
  }
  expect_refusal({"--rdzv_endpoint=node0:99999", "x"}, "--rdzv_endpoint node0:99999");
  expect_refusal({"--rdzv_endpoint=:29400", "x"}, "must be HOST:PORT");
  expect_refusal({"--rdzv_endpoint=a:1", "--master_addr=b", "x"}, "give one");
  expect_refusal({"--rdzv_endpoint=a:1", "--master_port=2", "x"}, "give one");
  expect_refusal({"--rdzv_endpoint=::1:29555", "x"},
                 "--rdzv_endpoint ::1:29555: must be HOST:PORT; an IPv6 address in brackets; nearest valid: [::1]:29555");
}

TEST(LaunchFlags, AnAddressHoldsNoPort) {
  expect_refusal({"--master_addr=localhost:29500", "x"},
                 "--master_addr localhost:29500: must be a host name or an address, without a port; nearest valid: "
                 "--master_addr localhost --master_port 29500, or --rdzv_endpoint localhost:29500");
  expect_refusal({"--bind=0.0.0.0:1", "x"},
                 "--bind 0.0.0.0:1: must be a host name or an address, without a port; --master_port names the port");
  expect_refusal({"--master_addr=::1:29555", "x"}, "an IPv6 address is written like fd00::1");
  for (const char* good : {"node0", "10.0.0.1", "::1", "[::1]", "fe80::1%eth0"}) {
    EXPECT_EQ(read({"--master_addr", good, "x"}).master_addr, good);
    EXPECT_EQ(read({"--bind", good, "x"}).bind, good);
  }
}

TEST(LaunchFlags, TheBeginningOfAFlagFindsIt) {
  expect_refusal({"--nproc=2", "x"}, "unknown flag --nproc; nearest known flag: --nproc_per_node");
}

TEST(LaunchFlags, WhatIsShown) {
  auto command = read({"--nproc_per_node=3", "--log_dir=logs", "--redirects=0:1,2:3", "--tee", "3", "x"});
  ASSERT_EQ(command.shown.size(), 3u);
  EXPECT_EQ(command.shown[0], (std::array<std::optional<Shown>, 2>{Shown::kPlain, Shown::kPlain})) << "tee wins: it is in the logs anyway";
  EXPECT_EQ(command.shown[1], (std::array<std::optional<Shown>, 2>{Shown::kLines, Shown::kLines}));
  command = read({"--nproc_per_node=3", "--log_dir=logs", "-r", "0:1,2:3", "-t", "1:2", "x"});
  EXPECT_EQ(command.shown[0], (std::array<std::optional<Shown>, 2>{Shown::kNothing, std::nullopt}));
  EXPECT_EQ(command.shown[1], (std::array<std::optional<Shown>, 2>{std::nullopt, Shown::kLines}));
  EXPECT_EQ(command.shown[2], (std::array<std::optional<Shown>, 2>{Shown::kNothing, Shown::kNothing}));
  expect_refusal({"--redirects=3", "x"}, "needs --log_dir");
  EXPECT_EQ(refusal({"--redirects=0", "x"}), "no error");
  for (const char* wrong : {"4", "0:4", "3:1", "a:1", "0:1,", "0:", ":"})
    expect_refusal({"--nproc_per_node=3", "--tee", wrong, "x"}, "--tee");
}

TEST(LaunchFlags, UnknownIgnoredAndRefusedFlags) {
  expect_refusal({"--nproc-per-nodes=2", "x"}, "unknown flag --nproc-per-nodes; nearest known flag: --nproc_per_node");
  expect_refusal({"--zzzzzzzz", "x"}, "unknown flag --zzzzzzzz; flags of the program");
  expect_refusal({"-x", "x"}, "unknown flag -x");
  expect_refusal({"--virtual-local-rank", "x"}, "plait launch does not have it");
  expect_refusal({"--standalone=1", "x"}, "takes no value");
  expect_refusal({"--log_dir="}, "empty value");
  expect_refusal({"--log_dir"}, "has no value");
  expect_refusal({"--log_dir", "--", "x"}, "has no value");
  auto command = read({"--rdzv_backend=c10d", "--monitor-interval", "5", "--use_env", "x"});
  EXPECT_EQ(command.notices.size(), 3u);
  EXPECT_EQ(command.notices[0], "--rdzv_backend has no effect: plait has one rendezvous of its own");
  EXPECT_EQ(command.program, Words{"x"});
}

TEST(LaunchFlags, IdsAndTimes) {
  EXPECT_EQ(read({"--rdzv_id=7", "x"}).job_id, "7");
  EXPECT_EQ(read({"--rdzv_id=7", "--job_id=7", "x"}).job_id, "7");
  expect_refusal({"--rdzv_id=7", "--job_id=8", "x"}, "differ");
  EXPECT_EQ(read({"--rdzv_timeout=10", "--stop_grace=5", "x"}).rendezvous_timeout, std::chrono::seconds(10));
  expect_refusal({"--rdzv_timeout=0", "x"}, "--rdzv_timeout 0: must be a whole number of seconds");
}

TEST(LaunchFlags, TorchrunsVariablesStandInForFlags) {
  Variables kubeflow = {
      {"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_NPROC_PER_NODE", "4"}, {"PET_MASTER_ADDR", "pod-0"}, {"PET_MASTER_PORT", "23456"}};
  auto command = read({"x"}, kubeflow);
  EXPECT_EQ(command.num_nodes, 2);
  EXPECT_EQ(command.node_rank, 1);
  EXPECT_EQ(command.nproc_per_node, 4);
  EXPECT_EQ(command.master_addr, "pod-0");
  EXPECT_EQ(command.master_port, 23456);
  EXPECT_EQ(command.notices.size(), 5u);
  EXPECT_EQ(read({"--nproc_per_node=2", "x"}, kubeflow).nproc_per_node, 2);
  EXPECT_NE(refusal({"x"}, {{"PET_NNODES", "two"}}).find("PET_NNODES two"), std::string::npos);
}

TEST(LaunchFlags, PlaitsVariablesStandInForFlags) {
  Variables variables = {{"PLAIT_BIND", "0.0.0.0"}, {"PLAIT_JOB_ID", "7"}, {"PLAIT_RDZV_TIMEOUT", "10"}, {"PLAIT_STOP_GRACE", "5"}};
  auto command = read({"x"}, variables);
  EXPECT_EQ(command.bind, "0.0.0.0");
  EXPECT_EQ(command.job_id, "7");
  EXPECT_EQ(command.rendezvous_timeout, std::chrono::seconds(10));
  EXPECT_EQ(command.stop_grace, std::chrono::seconds(5));
  EXPECT_EQ(read({"--rdzv_timeout=3", "x"}, variables).rendezvous_timeout, std::chrono::seconds(3));
  EXPECT_EQ(read({"--rdzv_id=9", "x"}, variables).job_id, "9");
  EXPECT_NE(refusal({"x"}, {{"PLAIT_STOP_GRACE", "long"}}).find("PLAIT_STOP_GRACE long: must be"), std::string::npos);
}

TEST(LaunchFlags, HelpNeedsNothingElse) {
  EXPECT_TRUE(read({"--help"}).help);
  EXPECT_TRUE(read({"-h"}).help);
  expect_refusal({}, "no program is named");
}

}  // namespace
}  // namespace plait
