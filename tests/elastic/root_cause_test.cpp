#include "plait/elastic/root_cause.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

RankEnd ended(int64_t rank, const std::string& how) {
  RankEnd end;
  end.rank = rank;
  end.host = "node7";
  end.pid = 100 + static_cast<pid_t>(rank);
  end.how = how;
  return end;
}

TEST(RootCause, EverythingThatIsKnown) {
  RankEnd first = ended(3, "signal 9 (Killed)");
  first.dp = 0, first.pp = 1, first.tp = 1;
  first.phase = "training";
  first.step = 12;
  first.message = "model.safetensors is cut short";
  first.log_path = "runs/x/logs/rank_3.log";
  first.last_lines = {"one", "two"};
  std::vector<RankEnd> others;
  for (int64_t rank : {0, 1, 2, 5, 7}) {
    others.push_back(ended(rank, rank < 3 ? "signal 15 (Terminated)" : "exit code 6"));
    others.back().stopped = rank < 3;
    others.back().lost_peer = rank >= 3;
  }
  EXPECT_EQ(
      root_cause_block(first, others, false),
      "ROOT CAUSE\n"
      "  rank     rank 3 (dp 0, pp 1, tp 1) on node7, process 103\n"
      "  phase    training, step 12\n"
      "  ended    with signal 9 (Killed)\n"
      "  message  model.safetensors is cut short\n"
      "  log      runs/x/logs/rank_3.log\n"
      "  its last lines:\n"
      "    | one\n"
      "    | two\n"
      "consequences: ranks 5, 7: exit code 6 (lost a peer); ranks 0-2: stopped by the launcher\n"
      "error: rank 3 (dp 0, pp 1, tp 1) failed first, with signal 9 (Killed) (runs/x/logs/rank_3.log): model.safetensors is cut short\n");
}

TEST(RootCause, NothingButTheCode) {
  EXPECT_EQ(root_cause_block(ended(0, "exit code 9"), {}, false),
            "ROOT CAUSE\n"
            "  rank     rank 0 on node7, process 100\n"
            "  ended    with exit code 9\n"
            "error: rank 0 failed first, with exit code 9\n");
}

TEST(RootCause, ALostPeerOfSeveralNodesPointsToTheOthers) {
  RankEnd first = ended(5, "exit code 6");
  first.lost_peer = true;
  std::string alone = root_cause_block(first, {}, false), one_of_many = root_cause_block(first, {}, true);
  EXPECT_EQ(alone.find("other node"), std::string::npos);
  EXPECT_NE(one_of_many.find("ROOT CAUSE: on another node; here this is the first consequence\n"), std::string::npos);
  EXPECT_NE(one_of_many.find("error: rank 5 lost a peer, with exit code 6: look at the other nodes for the rank that failed first\n"),
            std::string::npos)
      << one_of_many;
  first.lost_peer = false;
  EXPECT_NE(root_cause_block(first, {}, true).find("failed first"), std::string::npos);
}

TEST(RootCause, KilledRanksAreNamed) {
  RankEnd first = ended(3, ""), second = ended(5, "");
  first.dp = 0, first.pp = 1, first.tp = 1;
  first.phase = "training";
  first.step = 12;
  EXPECT_EQ(killed_line({second}, "did not end within 2 s"), "killed, as it did not end within 2 s: rank 5");
  EXPECT_EQ(killed_line({first, second}, "did not end within 2 s"),
            "killed, as they did not end within 2 s: rank 3 (dp 0, pp 1, tp 1) in training, step 12, rank 5");
  EXPECT_NE(killed_line(std::vector<RankEnd>(20, second), "x").find("rank 5 and 4 more"), std::string::npos);
}

TEST(RootCause, BlamedRank) {
  EXPECT_EQ(blamed_rank("error: rank 12 failed while exporting the model: disk full"), 12);
  EXPECT_EQ(blamed_rank("plait: rank 0 failed first: why"), 0);
  for (const char* none : {"", "error: rank 3 (dp 0, pp 1, tp 1): lost a peer", "rank x failed first", "rank 3 failed"})
    EXPECT_FALSE(blamed_rank(none)) << none;
}

TEST(RootCause, Texts) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({4}), "4");
  EXPECT_EQ(rank_list({2, 1}), "1, 2");
  EXPECT_EQ(rank_list({7, 0, 1, 2, 4}), "0-2, 4, 7");
  RankEnd end = ended(3, "");
  EXPECT_EQ(prefix_text(end), "node7 3");
  end.dp = 0, end.pp = 1, end.tp = 2;
  EXPECT_EQ(prefix_text(end), "node7 3 (0,1,2)");
  EXPECT_EQ(rank_text(end), "rank 3 (dp 0, pp 1, tp 2)");
}

}  // namespace
}  // namespace plait
