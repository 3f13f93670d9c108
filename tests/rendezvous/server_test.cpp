// Server and clients over loopback: a job that meets, and every reason to be refused.
#include "plait/rendezvous/server.h"

#include "tests/rendezvous/meeting.h"

namespace plait::rendezvous {
namespace {

TEST_F(Meeting, AllComeInAnyOrder) {
  start(5);
  std::vector<std::future<End>> ends;
  for (int64_t rank : {3, 1, 0, 4, 2}) ends.push_back(join(client(rank)));
  for (auto& end : ends) expect_end(end, ExitCode::kOk, "");
}

TEST_F(Meeting, RankZeroNamesWhoIsMissing) {
  start(12);
  std::vector<std::future<End>> ends;
  for (int64_t rank : {0, 1, 2, 5}) ends.push_back(join(client(rank, [](ClientOptions& o) { o.timeout = milliseconds(1500); })));
  EXPECT_TRUE(said("waiting for ranks 3, 4, 6-11 of 12 at 127.0.0.1:"));
  EXPECT_TRUE(said("here: rank 0 host node0, rank 1 host node1, rank 2 host node2, rank 5 host node5"));
  for (auto& end : ends) expect_end(end, ExitCode::kRendezvous, "did not come: ranks 3, 4, 6-11 of 12; here: rank 0 host node0");
}

TEST_F(Meeting, DifferentSettings) {
  expect_fatal([](ClientOptions& o) { o.self.settings = "train.batch_size: 64\n"; },
               "the settings differ: train.batch_size is (not set) at rank 0 (host node0, pid 100) and 64 at rank 1 (host node1, pid 101)");
}

TEST_F(Meeting, DifferentVersions) {
  expect_fatal([](ClientOptions& o) { o.self.version = "0.0.9"; },
               cat("plait's version is ", plait_version(), " at rank 0 (host node0, pid 100) and 0.0.9 at rank 1 (host node1, pid 101)"));
}

TEST_F(Meeting, DifferentWorldSizes) {
  expect_fatal([](ClientOptions& o) { o.self.world_size = 8; },
               "the number of ranks (WORLD_SIZE) is 4 at rank 0 (host node0, pid 100) and 8 at rank 1 (host node1, pid 101)");
}

TEST_F(Meeting, TheSameRankTwice) {
  expect_fatal([](ClientOptions& o) { o.self.rank = 2; }, "rank 2 came twice: host node2, pid 102 and host node1, pid 101");
}

TEST_F(Meeting, ALateSecondOneIsRefusedAlone) {
  expect_refused_late([](ClientOptions& o) { o.self.host = "elsewhere"; },
                      "rank 1 came twice: host node1, pid 101 and host elsewhere, pid 101; port ");
  expect_refused_late([](ClientOptions& o) { o.self.version = "9"; },
                      "and all its ranks are here: rank 1 (host node1, pid 101) is refused");
}

TEST_F(Meeting, AnotherJobIsToldWhosePortItIs) {
  start(2);
  // Its secret is another one too: the answer is about the job all the same.
  auto other = join(client(1, [](ClientOptions& o) { o.self.job_id = "B", o.secret = "another"; }));
  expect_end(other, ExitCode::kRendezvous, cat("port ", port_, " serves job A of 2 ranks (rank 0 on host node0, pid 100) since "));
  auto none = join(client(1, [](ClientOptions& o) { o.self.job_id = ""; }));
  expect_end(none, ExitCode::kRendezvous, "this is a job without id, rank 1 (host node1, pid 101)");
  auto zero = join(client(0)), one = join(client(1));
  expect_end(zero, ExitCode::kOk, "");
  expect_end(one, ExitCode::kOk, "");
}

TEST_F(Meeting, ABusyPortSaysWhoseItIs) {
  start(2);
  EXPECT_NE(whose_job("127.0.0.1", port_, milliseconds(5000)).find("serves job A of 2 ranks"), std::string::npos);
  try {
    listen_on({"127.0.0.1", port_, -1, "", false});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kRendezvous);
    EXPECT_NE(std::string(e.what()).find(cat("port busy: 127.0.0.1:", port_, " is in use by another job (port ", port_, " serves job A")),
              std::string::npos)
        << e.what();
  }
}

TEST_F(Meeting, WrongOrMissingSecrets) {
  start(2);
  auto wrong = join(client(1, [](ClientOptions& o) { o.secret = "the secreT"; }));
  expect_end(wrong, ExitCode::kAuth, "authentication refused: the secret of rank 1 (host node1, pid 101) at 127.0.0.1:");
  EXPECT_TRUE(said("authentication refused: the secret of rank 1"));
  auto missing = join(client(1, [](ClientOptions& o) { o.secret = ""; }));
  expect_end(missing, ExitCode::kAuth, "has none; PLAIT_SECRET_FILE names a file with the secret of the job");
  EXPECT_TRUE(said("refused 2 times, last: authentication refused: rank 0 (host node0, pid 100) has a secret and rank 1"));
  auto zero = join(client(0)), one = join(client(1));  // and the job goes on
  expect_end(zero, ExitCode::kOk, "");
  expect_end(one, ExitCode::kOk, "");
  for (const auto& line : lines_) EXPECT_EQ(line.find("the secreT"), std::string::npos);
}

TEST_F(Meeting, ARankZeroWithoutTheSecretOfTheOthers) {
  start(3, [](Server::Options& options) { options.service.secret = ""; });
  auto zero = join(client(0, [](ClientOptions& o) { o.secret = ""; }));
  ASSERT_TRUE(said("here: rank 0"));
  auto one = join(client(1));
  const std::string text = "has a secret and rank 0 (host node0, pid 100) has none";
  expect_end(one, ExitCode::kAuth, text);
  expect_end(zero, ExitCode::kAuth, text);
}

TEST_F(Meeting, WithoutSecretsOnBothSides) {
  start(2, [](Server::Options& options) { options.service.secret = ""; });
  auto zero = join(client(0, [](ClientOptions&o) { o.secret = ""; })), one = join(client(1, [](ClientOptions&o) { o.secret = ""; }));
  expect_end(zero, ExitCode::kOk, "");
  expect_end(one, ExitCode::kOk, "");
}

TEST_F(Meeting, ARankThatGoesAwayMeanwhileIsNamed) {
  start(3);
  auto zero = join(client(0));
  ASSERT_TRUE(said("here: rank 0"));
  {
    auto options = client(1);
    std::thread one([&] {  // ends by an exception: no goodbye
      try {
        Client gone(options);
        throw std::runtime_error("out of memory");
      } catch (const std::exception&) {}
    });
    one.join();
  }
  expect_end(zero, ExitCode::kPeerLost, "rank 1 (host node1, pid 101) went away while the others waited for rank 2 of 3");
}

TEST_F(Meeting, ReferenceSettingsMustFitToo) {
  start(2, [](Server::Options& options) { options.service.self.settings = "a: 1\nb: 2\n"; });
  auto zero = join(client(0));
  auto one = join(client(1, [](ClientOptions& o) { o.self.settings = "a: 1\nb: 3\n"; }));
  expect_end(one, ExitCode::kRendezvous, "the settings differ: b is 2 at rank 0 (host node0, pid 100) and 3 at rank 1");
  expect_end(zero, ExitCode::kRendezvous, "the settings differ: b is 2");
}

}  // namespace
}  // namespace plait::rendezvous
