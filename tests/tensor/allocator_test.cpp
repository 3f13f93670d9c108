#include "plait/tensor/allocator.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "plait/tensor/arena.h"

namespace plait {
namespace {

class Allocator : public ::testing::Test {
 protected:
  void SetUp() override { install_caching_allocator(); }
};

TEST_F(Allocator, IsTheProcessAllocatorAndCounts) {
  ASSERT_TRUE(caching_allocator_installed());
  const MemoryStats before = memory_stats();
  {
    at::Tensor a = at::empty({1000}, at::kFloat), b = at::empty({3 << 20}, at::kFloat);
    EXPECT_EQ(memory_stats().live_bytes - before.live_bytes, 4000 + (12 << 20));
    EXPECT_GE(memory_stats().peak_bytes, before.live_bytes + 4000 + (12 << 20));
    EXPECT_EQ(a.storage().data_ptr().get_context(), a.data_ptr());
    EXPECT_EQ(b.storage().data_ptr().get_context(), b.data_ptr());
    EXPECT_GE(memory_stats().num_allocations - before.num_allocations, 2);
  }
  EXPECT_EQ(memory_stats().live_bytes, before.live_bytes);
  reset_peak_memory();
  EXPECT_EQ(memory_stats().peak_bytes, memory_stats().live_bytes);
  EXPECT_EQ(at::empty({0}).data_ptr(), nullptr);
}

// Every size near a class border: aligned, writable to the last byte, never overlapping another live block.
TEST_F(Allocator, BlocksOfAllSizesAreDisjoint) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  std::vector<std::pair<c10::DataPtr, size_t>> blocks;
  std::vector<size_t> sizes;
  for (size_t power = 1; power <= (size_t{4} << 20); power *= 2)
    for (size_t size : {power - 1, power, power + 1, power + power / 4, power - 64, power - 65})
      if (size > 0 && size < (size_t{8} << 20)) sizes.push_back(size);
  for (size_t size : sizes) {
    blocks.emplace_back(allocator->allocate(size), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().first.get()) % 64, 0u);
    std::memset(blocks.back().first.get(), static_cast<int>(blocks.size() % 251), size);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto* data = static_cast<const unsigned char*>(blocks[i].first.get());
    for (size_t j = 0; j < blocks[i].second; ++j) ASSERT_EQ(data[j], (i + 1) % 251) << blocks[i].second;
  }
}

TEST_F(Allocator, FreedMemoryServesTheNextStep) {
  auto step = [] {
    std::vector<at::Tensor> live;
    for (int64_t i = 0; i < 40; ++i) live.push_back(at::ones({(i * 7919) % 900000 + 1}));
  };
  step();
  const int64_t reserved = memory_stats().reserved_bytes;
  EXPECT_GT(memory_stats().cached_bytes, 0);
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(memory_stats().reserved_bytes, reserved);
  release_cached_memory();
  EXPECT_EQ(memory_stats().cached_bytes, 0);
  step();  // released blocks come back as fresh pages
}

// What is kept never exceeds the documented bound.
TEST_F(Allocator, KeepsNoMoreThanWasNeeded) {
  int64_t needed = 0;  // the highest peak so far, resets or not
  for (int64_t size = 1 << 20; size < (100 << 20); size = size * 5 / 3) {
    { at::Tensor a = at::zeros({size}, at::kByte), b = at::zeros({size / 3}, at::kByte); }
    const MemoryStats s = memory_stats();
    needed = std::max(needed, s.peak_bytes);
    EXPECT_LE(s.live_bytes + s.cached_bytes, std::max<int64_t>(needed, 64 << 20) * 5 / 4 + (64 << 20));
  }
}

// Memory of tensors that was made elsewhere counts as used, but not in what is worth keeping.
TEST_F(Allocator, OtherMemoryIsLiveButNotKeptFor) {
  constexpr int64_t kOther = int64_t{1} << 30;
  release_cached_memory();
  reset_peak_memory();
  const MemoryStats before = memory_stats();
  { at::Tensor large = at::ones({25 << 20}, at::kFloat); }
  const int64_t kept = memory_stats().cached_bytes;
  EXPECT_GT(kept, 0);
  count_other_memory(kOther);
  EXPECT_EQ(memory_stats().live_bytes, before.live_bytes + kOther);
  EXPECT_EQ(memory_stats().peak_bytes, before.live_bytes + kOther);
  EXPECT_EQ(memory_stats().num_allocations, before.num_allocations + 1);
  {
    at::Tensor more = at::ones({1000}, at::kFloat);
    EXPECT_EQ(memory_stats().live_bytes, before.live_bytes + kOther + 4000);
    EXPECT_EQ(memory_stats().peak_bytes, before.live_bytes + kOther + 4000) << "the two count together";
  }
  { at::Tensor again = at::ones({25 << 20}, at::kFloat); }
  EXPECT_EQ(memory_stats().cached_bytes, kept) << "what is kept does not go for its sake";
  count_other_memory(-kOther);
  EXPECT_EQ(memory_stats().live_bytes, before.live_bytes);
  EXPECT_EQ(memory_stats().peak_bytes, before.live_bytes + kOther + (int64_t{100} << 20)) << "of the large tensor beside it";
  reset_peak_memory();
  EXPECT_EQ(memory_stats().peak_bytes, before.live_bytes);
}

TEST_F(Allocator, ThreadsFreeEachOthersBlocks) {
  constexpr int kThreads = 4, kRounds = 4000;
  struct Box {
    std::mutex mutex;
    std::vector<at::Tensor> tensors;
  };
  std::vector<Box> boxes(kThreads);
  std::atomic<int> faults{0};
  const int64_t before = memory_stats().live_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int round = 0; round < kRounds; ++round) {
        int64_t n = random() % 50 == 0 ? random() % 200000 + 1 : random() % 2000 + 1;
        at::Tensor made = at::full({n}, static_cast<double>(n));
        at::Tensor taken;
        Box& box = boxes[random() % kThreads];
        {
          std::lock_guard lock(box.mutex);
          if (box.tensors.size() > 20) {
            taken = box.tensors.front();
            box.tensors.erase(box.tensors.begin());
          }
          box.tensors.push_back(std::move(made));
        }
        if (taken.defined() && !taken.eq(static_cast<double>(taken.numel())).all().item<bool>()) ++faults;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(faults, 0);
  for (auto& box : boxes) box.tensors.clear();
  EXPECT_EQ(memory_stats().live_bytes, before);
}

// Freed when everything else of the process is gone: thread caches of main's thread, then static objects.
TEST_F(Allocator, TensorsMayOutliveEverything) {
  static at::Tensor of_process = at::ones({100}), large_of_process = at::ones({1 << 20});
  static thread_local at::Tensor of_thread = at::ones({100});
  std::thread([] {
    static thread_local at::Tensor inner;
    inner = at::ones({64});
  }).join();
  EXPECT_EQ(of_process.numel() + of_thread.numel(), 200);
}

TEST(Arena, MergesNeighboursAndReusesBestFit) {
  constexpr size_t kPage = detail::Arena::kPage;
  detail::Arena arena;
  char* a = arena.allocate(4 * kPage);
  char* b = arena.allocate(2 * kPage);
  char* c = arena.allocate(4 * kPage);
  char* d = arena.allocate(kPage);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % detail::Arena::kHugePage, 0u);
  EXPECT_EQ(b, a + 4 * kPage);
  std::memset(a, 1, 11 * kPage);
  arena.free(b, 2 * kPage);
  arena.free(a, 4 * kPage);
  EXPECT_EQ(arena.cached_bytes(), 6 * kPage);
  EXPECT_EQ(arena.allocate(6 * kPage), a);  // a and b as one
  arena.free(a, 6 * kPage);
  arena.free(c, 4 * kPage);
  EXPECT_EQ(arena.allocate(10 * kPage), a);
  arena.free(a, 10 * kPage);
  arena.free(d, kPage);
  EXPECT_EQ(arena.allocate(20 * kPage), a);  // grows into the part never used
  arena.free(a, 20 * kPage);
  arena.trim(0);
  EXPECT_EQ(arena.cached_bytes(), 0u);
  char* again = arena.allocate(2 * kPage);
  EXPECT_EQ(again[0], 0);  // given back: zero pages
  arena.free(again, 2 * kPage);
  EXPECT_EQ(arena.reserved_bytes(), detail::Arena::kSegment);
  char* huge = arena.allocate(detail::Arena::kSegment + kPage);
  ASSERT_NE(huge, nullptr);
  EXPECT_GT(arena.reserved_bytes(), 2 * detail::Arena::kSegment);
}

// Cutting a block of which only the end holds pages: those still count, and go back when asked.
TEST(Arena, NoResidentPageIsForgotten) {
  constexpr size_t kPage = detail::Arena::kPage, kX = 100 * kPage, kY = 50 * kPage;
  detail::Arena arena;
  char* x = arena.allocate(kX);
  char* y = arena.allocate(kY);
  arena.allocate(kPage);  // in use: the two do not grow into what was never used
  std::memset(x, 1, kX + kY);
  arena.free(x, kX);
  arena.trim(0);
  arena.free(y, kY);
  EXPECT_EQ(arena.cached_bytes(), kY);
  EXPECT_EQ(arena.allocate(kX), x);
  EXPECT_EQ(arena.cached_bytes(), kY);
  arena.trim(0);
  EXPECT_EQ(arena.cached_bytes(), 0u);
  EXPECT_EQ(arena.allocate(kY), y);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[kY - 1], 0);
}

// What was never used of a segment becomes one with the free block before it.
TEST(Arena, TheRestOfASegmentMergesToo) {
  constexpr size_t kMiB = size_t{1} << 20, kSegment = detail::Arena::kSegment;
  detail::Arena arena;
  arena.allocate(kSegment - 66 * kMiB);
  char* last = arena.allocate(10 * kMiB);
  arena.free(last, 10 * kMiB);
  ASSERT_NE(arena.allocate(100 * kMiB), nullptr);  // another segment
  EXPECT_EQ(arena.reserved_bytes(), 2 * kSegment);
  EXPECT_EQ(arena.allocate(66 * kMiB), last);
}

}  // namespace
}  // namespace plait
