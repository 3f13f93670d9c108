// Measures what ranks can send each other: every pair of ranks (time of a small message, bandwidth of a large one), collectives over all
// of them by size, and how far the clocks of their machines are apart. For `plait doctor`, and for the
// clocks of a trace.
// Rank rule: collective over mesh.world(); pairs are measured one after the other while the other ranks wait.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plait/comm/mesh.h"

namespace plait {

struct PairMeasure {
  int64_t first = 0, second = 0;  // world ranks, first < second
  double latency_seconds = 0;     // half of the shortest round trip of 8 bytes
  double bytes_per_second = 0;    // of messages of 1 MiB, each way in turn
};

struct CollectiveMeasure {
  std::string operation;  // all_reduce | all_gather | reduce_scatter
  int64_t bytes = 0;      // of the whole tensor: of all_gather's output, of reduce_scatter's input
  double seconds = 0;     // median of the slowest rank
};

struct LinkReport {
  std::vector<PairMeasure> pairs;
  std::vector<CollectiveMeasure> collectives;
  std::vector<double> clock_seconds;        // by rank: its wall clock minus that of rank 0
  std::vector<double> clock_error_seconds;  // by rank: the clock difference is known to this much
};

struct LinkTestOptions {
  int64_t small_round_trips = 40, large_round_trips = 4, collective_rounds = 8;
};

// Every rank gets the whole report. World of 1: an empty one. `now` is the wall clock in seconds since 1970 (tests give a wrong one).
LinkReport test_links(Mesh& mesh, const LinkTestOptions& options = {}, const std::function<double()>& now = {});

// The clocks alone: clock_seconds and clock_error_seconds. `now` as above.
LinkReport compare_clocks(Mesh& mesh, int64_t round_trips, const std::function<double()>& now);

// Texts of all ranks, by rank, on every rank. Collective over `group`.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own);

}  // namespace plait
