#include "plait/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "plait/base/error.h"

namespace plait {
namespace {

std::vector<int64_t> epoch_rows(EpochOrder& order, int64_t epoch) {
  std::vector<int64_t> rows;
  for (int64_t p = 0; p < order.num_rows(); ++p) rows.push_back(order.row(epoch, p));
  return rows;
}

std::vector<int64_t> counting(int64_t n) {
  std::vector<int64_t> rows(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) rows[i] = i;
  return rows;
}

std::vector<int64_t> sorted(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<int64_t> golden_order(const std::string& name) {
  std::ifstream in(std::string(PLAIT_TEST_DATA) + "/golden/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  std::vector<int64_t> rows;
  for (int32_t row; in.read(reinterpret_cast<char*>(&row), sizeof row);) rows.push_back(row);
  return rows;
}

ExitCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::kOk;
}

TEST(EpochOrder, EqualsTheReferenceOrders) {  // made in Python: sorted(range(n), key=sha256("0:0:ROW"))
  for (auto [name, n] : {std::pair<std::string, int64_t>{"wordnet12/order.bin", 4800}, {"austen/smollm2_order.bin", 6478}}) {
    EpochOrder order(n, 0, true);
    EXPECT_EQ(epoch_rows(order, 0), golden_order(name)) << name;
  }
}

TEST(EpochOrder, PermutationEqualsTheDocumentedRule) {  // made in Python from the rule in docs/data.md
  EpochOrder small(1000, 7, true, /*sort_limit=*/0), large((1 << 24) + 1, 0, true);
  std::vector<int64_t> small_rows, large_rows;
  for (int64_t p = 0; p < 10; ++p) small_rows.push_back(small.row(3, p));
  for (int64_t p = 0; p < 5; ++p) large_rows.push_back(large.row(0, p));
  EXPECT_EQ(small_rows, (std::vector<int64_t>{271, 892, 111, 421, 835, 28, 50, 754, 834, 373}));
  EXPECT_EQ(large_rows, (std::vector<int64_t>{14743884, 2348725, 6510644, 1712983, 14264185}));
}

TEST(EpochOrder, EachRowOnceAnEpochAndEpochsDiffer) {
  for (int64_t sort_limit : {kMaxSortedRows, int64_t{0}}) {
    for (int64_t n : {1, 2, 3, 7, 12, 64, 65, 1000, 4099}) {
      EpochOrder order(n, 5, true, sort_limit);
      std::set<std::vector<int64_t>> seen;
      for (int64_t epoch : {0, 1, 2, 0}) {
        auto rows = epoch_rows(order, epoch);
        EXPECT_EQ(sorted(rows), counting(n));
        seen.insert(rows);
      }
      if (n < 7) continue;                                   // so few rows may well come in the same order
      EXPECT_EQ(seen.size(), 3u) << n << " " << sort_limit;  // epoch 0 asked twice is the same
      EpochOrder other_seed(n, 6, true, sort_limit);
      EXPECT_NE(epoch_rows(order, 0), epoch_rows(other_seed, 0)) << n << " " << sort_limit;
    }
  }
}

TEST(EpochOrder, FileOrderWithoutShuffle) {
  EpochOrder order(9, 5, false);
  EXPECT_EQ(epoch_rows(order, 0), counting(9));
  EXPECT_EQ(epoch_rows(order, 4), counting(9));
}

TEST(EpochOrder, SaysHowItIsMade) {
  EXPECT_NE(EpochOrder(10, 42, true).describe().find("sha256(\"42:e:ROW\")"), std::string::npos);
  EXPECT_NE(EpochOrder(10, 42, true, 0).describe().find("feistel6-mix64"), std::string::npos);
  EXPECT_NE(EpochOrder(10, 42, false).describe().find("file order"), std::string::npos);
}

TEST(Sampler, EveryRowOnceAnEpochInEveryLayout) {
  for (int64_t n : {1, 2, 5, 12}) {
    for (int64_t batch = 1; batch <= n + 1; ++batch) {
      StepPlan plan = plan_steps(n, batch, 2, 0);
      EpochOrder order(n, 3, true);
      ASSERT_EQ(plan.num_steps, 2 * ((n + batch - 1) / batch));
      std::vector<std::vector<int64_t>> visited(2);
      for (int64_t step = 0; step < plan.num_steps; ++step) {
        auto rows = rows_of_step(plan, order, step);
        ASSERT_FALSE(rows.empty());
        ASSERT_LE(static_cast<int64_t>(rows.size()), batch);
        auto& epoch = visited[plan.epoch_of_step(step)];
        epoch.insert(epoch.end(), rows.begin(), rows.end());
        // Whatever the layout, data rank by data rank, micro-batch by micro-batch, the step's rows in their order.
        for (int64_t dp = 1; dp <= 4; ++dp) {
          for (int64_t micro_batches = 1; micro_batches <= 5; ++micro_batches) {
            std::vector<int64_t> joined;
            size_t smallest = rows.size(), largest = 0;
            for (int64_t d = 0; d < dp; ++d) {
              for (int64_t m = 0; m < micro_batches; ++m) {
                auto piece = rows_of_micro_batch(rows, dp, micro_batches, d, m);
                joined.insert(joined.end(), piece.begin(), piece.end());
                smallest = std::min(smallest, piece.size());
                largest = std::max(largest, piece.size());
              }
            }
            ASSERT_EQ(joined, rows);
            ASSERT_LE(largest - smallest, 1u);
          }
        }
      }
      for (const auto& epoch : visited) ASSERT_EQ(sorted(epoch), counting(n));
    }
  }
}

TEST(Sampler, PositionIsSamplesConsumed) {
  StepPlan plan = plan_steps(10, 4, 3, 0);
  int64_t samples = 0;
  for (int64_t step = 0; step < plan.num_steps; ++step) {
    EXPECT_EQ(plan.samples_before_step(step), samples);
    EXPECT_EQ(plan.step_at(samples), step);
    samples += plan.positions_of_step(step).size;
  }
  EXPECT_EQ(samples, 30);
  EXPECT_EQ(plan.step_at(30), plan.num_steps);
  EXPECT_EQ(code_of([&] { plan.step_at(5); }), ExitCode::kUsage);
  EXPECT_EQ(plan_steps(10, 2, 1, 0).step_at(14), 5 + 2);  // another batch size that fits the position
}

TEST(Sampler, StepsOfARun) {
  EXPECT_EQ(plan_steps(4800, 32, 1, 0).num_steps, 150);
  EXPECT_EQ(plan_steps(4801, 32, 1, 0).num_steps, 151);
  EXPECT_EQ(plan_steps(4800, 32, 3, 20).num_steps, 20);  // max_steps wins, in both directions
  EXPECT_EQ(plan_steps(4800, 32, 1, 1000).num_steps, 1000);
  EXPECT_EQ(plan_steps(3, 100, 1, 0).num_steps, 1);
  EXPECT_EQ(code_of([] { plan_steps(0, 1, 1, 0); }), ExitCode::kData);
  EXPECT_EQ(code_of([] { plan_steps(1, 0, 1, 0); }), ExitCode::kUsage);
  EXPECT_EQ(code_of([] { plan_steps(1, 1, 0, 0); }), ExitCode::kUsage);
}

}  // namespace
}  // namespace plait
