// What `plait doctor` measures between ranks: every pair once, every collective, and a clock that is wrong is found.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "plait/comm/launch.h"
#include "plait/comm/link_test.h"

namespace plait {
namespace {

double wall_clock() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

TEST(LinkTest, EveryPairAndEveryCollective) {
  for (int64_t ranks : {2, 3, 4}) {
    run_thread_ranks({ranks, 1, 1}, [&](Mesh& mesh) {
      LinkReport report = test_links(mesh, {4, 2, 2});
      std::set<std::pair<int64_t, int64_t>> pairs;
      for (const auto& pair : report.pairs) {
        expect(pair.first < pair.second && pair.second < ranks, "ranks of a pair");
        expect(pair.latency_seconds > 0 && pair.latency_seconds < 60, "latency");
        expect(pair.bytes_per_second > 1024, "bandwidth");
        pairs.insert({pair.first, pair.second});
      }
      expect(static_cast<int64_t>(pairs.size()) == ranks * (ranks - 1) / 2 && report.pairs.size() == pairs.size(), "all pairs, each once");
      expect(report.collectives.size() == 9, "three collectives of three sizes");
      for (const auto& collective : report.collectives) {
        expect(collective.seconds > 0 && collective.bytes > 0 && collective.bytes % (4 * ranks) == 0, collective.operation);
        expect(collective.bytes > (4 << 10) - 4 * ranks && collective.bytes <= 4 << 20, "size");
      }
    });
  }
}

TEST(LinkTest, WrongClockIsFound) {
  run_thread_ranks({3, 1, 1}, [](Mesh& mesh) {
    // The clock of rank 2 is 40 s ahead; that of rank 1 is 7 s behind.
    double wrong = mesh.rank() == 2 ? 40 : mesh.rank() == 1 ? -7 : 0;
    LinkReport report = test_links(mesh, {10, 1, 1}, [wrong] { return wall_clock() + wrong; });
    const double want[] = {0, -7, 40};
    for (size_t rank = 0; rank < 3; ++rank) {
      double error = report.clock_error_seconds[rank];
      expect(error >= 0 && error < 5, "error of the clocks");
      expect(std::abs(report.clock_seconds[rank] - want[rank]) <= error + 1e-3, "clock of a rank");
    }
  });
}

TEST(LinkTest, OneRankHasNoLinks) {
  run_thread_ranks({1, 1, 1}, [](Mesh& mesh) {
    LinkReport report = test_links(mesh);
    expect(report.pairs.empty() && report.collectives.empty() && report.clock_seconds.size() == 1, "nothing to measure");
  });
}

TEST(LinkTest, TextsOfAllRanks) {
  run_thread_ranks({3, 1, 1}, [](Mesh& mesh) {
    std::string own =
        mesh.rank() == 1 ? "" : std::string(static_cast<size_t>(mesh.rank()) * 1000 + 3, static_cast<char>('a' + mesh.rank()));
    auto texts = gather_texts(mesh.world(), own);
    expect(texts == std::vector<std::string>{"aaa", "", std::string(2003, 'c')}, "texts by rank");
  });
}

}  // namespace
}  // namespace plait
