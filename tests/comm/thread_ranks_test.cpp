// The in-process backend: every operation, type and group size; races, failures and calls that differ.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "tests/comm/collective_cases.h"

namespace plait {
namespace {

using testing::require;

MeshLayout line(int64_t n) { return {n, 1, 1}; }

TEST(ThreadRanks, EveryOperationTypeAndSize) {
  for (int64_t n : {1, 2, 3, 4})
    run_thread_ranks(line(n), [](Mesh& mesh) { testing::every_operation(mesh.world(), {{1}, {7}, {3, 5}, {2, 3, 17}, {5, 1031}, {0}}); });
}

TEST(ThreadRanks, LargeTensorsAreCutIntoSlices) {
  run_thread_ranks(line(3), [](Mesh& mesh) {
    for (auto type : {at::kFloat, at::kBFloat16}) {
      std::vector<int64_t> shape{3, 100003};
      testing::all_reduce_case(mesh.world(), type, shape);
      testing::all_gather_case(mesh.world(), type, shape);
      testing::reduce_scatter_case(mesh.world(), type, shape);
      testing::broadcast_case(mesh.world(), type, shape);
      testing::ring_case(mesh.world(), type, shape);
    }
  });
}

TEST(ThreadRanks, GroupsOfEveryAxis) {
  MeshLayout layout{2, 3, 2};
  run_thread_ranks(layout, [&](Mesh& mesh) {
    for (auto [axis, group] : {std::pair{Axis::kData, &mesh.data()},
                               {Axis::kPipeline, &mesh.pipeline()},
                               {Axis::kTensor, &mesh.tensor()},
                               {Axis::kWorld, &mesh.world()}}) {
      require(group->members() == layout.group_ranks(axis, mesh.rank()), "members");
      require(group->members()[static_cast<size_t>(group->rank())] == mesh.rank(), "own place");
      at::Tensor x = at::full({3}, static_cast<double>(mesh.rank()), at::kDouble);
      double want = 0;
      for (int64_t member : group->members()) want += static_cast<double>(member);
      group->all_reduce(x)->wait();
      testing::require_equal(x, at::full_like(x, want), group->name());
    }
  });
}

TEST(ThreadRanks, SumIsInRankOrderAndBitEqual) {
  // ((1e8 + 1) - 1e8) + 1 in fp32 is 1; any other order gives 2 or 0.
  std::vector<float> values{1e8f, 1.0f, -1e8f, 1.0f};
  run_thread_ranks(line(4), [&](Mesh& mesh) {
    for (int64_t n : {3, 100000}) {
      at::Tensor x = at::full({n}, static_cast<double>(values[static_cast<size_t>(mesh.rank())]), at::kFloat);
      mesh.world().all_reduce(x)->wait();
      testing::require_equal(x, at::full_like(x, 1.0), "rank order");
    }
    // bf16: 256 + 1 + 1 + 1 accumulated in fp32 is 259 -> 260; rounded at every step it stays 256.
    at::Tensor x = at::full({5}, mesh.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    mesh.world().all_reduce(x)->wait();
    testing::require_equal(x, at::full_like(x, 260.0), "fp32 accumulation");
  });
}

TEST(ThreadRanks, MaxKeepsNan) {
  run_thread_ranks(line(3), [](Mesh& mesh) {
    at::Tensor x = at::full({4}, mesh.rank() == 1 ? std::nan("") : 2.0, at::kFloat);
    mesh.world().all_reduce(x, ReduceOp::kMax)->wait();
    require(at::isnan(x).all().item<bool>(), "NaN lost");
  });
}

TEST(ThreadRanks, BackToBackWithoutBarrier) {
  for (int64_t n : {2, 4}) run_thread_ranks(line(n), [](Mesh& mesh) { testing::back_to_back_case(mesh.world(), 20000); });
}

TEST(ThreadRanks, TwoInFlight) {
  run_thread_ranks(line(3), [](Mesh& mesh) { testing::two_in_flight_case(mesh.world()); });
}

TEST(ThreadRanks, FirstExceptionIsRethrownAndOthersWake) {
  auto start = std::chrono::steady_clock::now();
  std::atomic<int> woken{0};
  try {
    run_thread_ranks(line(4), [&](Mesh& mesh) {
      at::Tensor x = at::ones({4});
      mesh.world().all_reduce(x)->wait();
      if (mesh.rank() == 2) throw_error(ExitCode::kData, "row 17 is bad");
      try {
        if (mesh.rank() == 3) {
          mesh.world().recv(x, 2, 0)->wait();
        } else {
          mesh.world().all_reduce(x)->wait();
        }
      } catch (const Error& e) {
        if (e.code() == ExitCode::kPeerLost && std::string(e.what()).find("rank 2 failed first: row 17 is bad") != std::string::npos)
          ++woken;
        throw;
      }
    });
    FAIL() << "nothing thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kData);
    EXPECT_STREQ(e.what(), "row 17 is bad");
  }
  EXPECT_EQ(woken, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(ThreadRanks, DifferentCallsNameBoth) {
  run_thread_ranks(line(2), [](Mesh& mesh) {
    for (int kind = 0; kind < 3; ++kind) {
      try {
        at::Tensor x = at::ones({kind == 1 && mesh.rank() == 1 ? 5 : 4}, kind == 2 && mesh.rank() == 1 ? at::kDouble : at::kFloat);
        WorkPtr work = kind == 0 && mesh.rank() == 1 ? mesh.world().broadcast(x, 0) : mesh.world().all_reduce(x);
        work->wait();
        require(false, "a mismatch went unseen");
      } catch (const Error& e) {
        std::string text = e.what();
        require(e.code() == ExitCode::kBug && text.find("rank 0 calls all_reduce [4] Float") != std::string::npos, text);
        const char* other[] = {"rank 1 calls broadcast from 0 [4] Float", "rank 1 calls all_reduce [5] Float",
                               "rank 1 calls all_reduce [4] Double"};
        require(text.find(other[kind]) != std::string::npos, text);
      }
    }
    at::Tensor x = at::ones({mesh.rank() == 0 ? 3 : 4});
    try {
      (mesh.rank() == 0 ? mesh.world().send(x, 1, 5) : mesh.world().recv(x, 0, 5))->wait();
      require(false, "a message mismatch went unseen");
    } catch (const Error& e) {
      std::string text = e.what();
      require(text.find("send [3]") != std::string::npos && text.find("recv [4]") != std::string::npos, text);
    }
  });
}

TEST(ThreadRanks, RankThatEndsEarlyIsNamed) {
  try {
    run_thread_ranks(line(3), [](Mesh& mesh) {
      if (mesh.rank() == 1) return;
      at::Tensor x = at::ones({4});
      mesh.world().all_reduce(x)->wait();
    });
    FAIL() << "nothing thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1 has ended"), std::string::npos) << e.what();
  }
}

TEST(ThreadRanks, TimeoutNamesWhoIsMissing) {
  try {
    run_thread_ranks(
        line(3),
        [](Mesh& mesh) {
          at::Tensor x = at::ones({4});
          mesh.world().all_reduce(x)->wait();
          if (mesh.rank() == 2) {
            std::this_thread::sleep_for(std::chrono::milliseconds(6000));
            return;
          }
          mesh.world().all_reduce(x)->wait();
        },
        std::chrono::milliseconds(2000));
    FAIL() << "nothing thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kHang);
    // On a busy machine the other waiting rank may be late too; then it is named beside rank 2, and truly was not there.
    const std::string what = e.what(), mark = "not there: rank ";
    auto at = what.find(mark);
    ASSERT_NE(at, std::string::npos) << what;
    std::string missing = what.substr(at + mark.size());
    EXPECT_TRUE(missing == "2" || missing == "0, 2" || missing == "1, 2") << what;
  }
}

TEST(ThreadRanks, FinishedOperationsHoldNoMemory) {
  run_thread_ranks(line(2), [](Mesh& mesh) {
    at::Tensor x = at::ones({4}), y = at::ones({4});
    WorkPtr work = mesh.world().all_reduce(x);
    WorkPtr message = mesh.rank() == 0 ? mesh.world().send(y, 1, 0) : mesh.world().recv(y, 0, 0);
    mesh.world().barrier();
    // Rank 1 has not waited yet, and still nobody holds the tensors.
    if (mesh.rank() == 0) work->wait();
    if (mesh.rank() == 0) message->wait();
    require(x.use_count() == 1 && y.use_count() == 1, "a finished operation still holds its tensor");
    mesh.world().barrier();
    work->wait();
    message->wait();
  });
}

}  // namespace
}  // namespace plait
