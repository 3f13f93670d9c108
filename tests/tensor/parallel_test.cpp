// Work is really shared out: a loop in one thread would pass every comparison of results.
#include "plait/tensor/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace plait {
namespace {

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

TEST(ParallelRanges, SeveralThreadsCoverTheRangeOnce) {
  Threads three(3);
  std::vector<std::atomic<int>> visits(1000);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_ranges(0, 1000, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) ++visits[static_cast<size_t>(i)];
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  for (auto& count : visits) EXPECT_EQ(count, 1);
  EXPECT_EQ(threads.size(), 3u);
}

TEST(ParallelRanges, OneThreadInsideAnotherRegionAndForSmallRanges) {
  Threads two(2);
  std::atomic<int> pieces = 0;
  parallel_ranges(0, 2, 1, [&](int64_t, int64_t) { parallel_ranges(0, 100, 1, [&](int64_t, int64_t) { ++pieces; }); });
  EXPECT_EQ(pieces, 2);
  pieces = 0;
  parallel_ranges(0, 100, 100, [&](int64_t, int64_t) { ++pieces; });
  EXPECT_EQ(pieces, 1);
}

// at::set_num_threads(1) in a thread would be the number of every thread that looks at it later.
TEST(ParallelRanges, OneThreadOfAThreadIsItsOwn) {
  Threads three(3);
  int here = 0, later = 0;
  std::atomic<int> pieces = 0;
  std::thread([&] {
    use_one_thread();
    here = at::get_num_threads();
    parallel_ranges(0, 100, 1, [&](int64_t, int64_t) { ++pieces; });
  }).join();
  std::thread([&] { later = at::get_num_threads(); }).join();
  EXPECT_EQ(here, 1);
  EXPECT_EQ(pieces, 1);
  EXPECT_EQ(later, 3);
}

TEST(ParallelRanges, ExceptionsReachTheCaller) {
  Threads two(2);
  EXPECT_THROW(parallel_ranges(0, 2, 1,
                               [](int64_t first, int64_t) {
                                 if (first == 1) throw std::runtime_error("in a thread");
                               }),
               std::runtime_error);
}

}  // namespace
}  // namespace plait
