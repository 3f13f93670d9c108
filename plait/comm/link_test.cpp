#include "plait/comm/link_test.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "plait/base/error.h"

namespace plait {
namespace {

constexpr int kLinkTag = 7907;
constexpr int64_t kLargeBytes = 1 << 20;

double seconds_of_this_machine() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class LinkTest {
 public:
  LinkTest(Mesh& mesh, const LinkTestOptions& options, std::function<double()> now)
      : group_(mesh.world()), rank_(mesh.world().rank()), size_(mesh.world().size()), options_(options), now_(std::move(now)) {}

  LinkReport run() {
    LinkReport report;
    measure_clocks(&report);
    measure_pairs(&report);
    for (int64_t bytes : {4 << 10, 256 << 10, 4 << 20})
      for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter"})
        report.collectives.push_back(measure_collective(operation, bytes));
    return report;
  }

  LinkReport clocks() {
    LinkReport report;
    measure_clocks(&report);
    return report;
  }

 private:
  at::Tensor floats(int64_t count) const { return at::zeros({count}, at::TensorOptions().dtype(at::kFloat).device(group_.device())); }

  // A message is here when a value of it can be read: on a CUDA device wait() alone does not say so.
  static void arrive(const WorkPtr& work, const at::Tensor& tensor) {
    work->wait();
    tensor.view({-1})[0].item<double>();
  }

  void send(const at::Tensor& tensor, int64_t to) { group_.send(tensor, to, kLinkTag)->wait(); }
  void receive(const at::Tensor& tensor, int64_t from) { arrive(group_.recv(tensor, from, kLinkTag), tensor); }

  // Seconds of each round trip; the lower rank asks, the other answers. Once unmeasured: connections and buffers are made on first use.
  std::vector<double> round_trips(int64_t peer, int64_t bytes, int64_t count) {
    at::Tensor out = floats(bytes / 4), in = floats(bytes / 4);
    std::vector<double> times;
    for (int64_t i = 0; i <= count; ++i) {
      double begin = seconds_of_this_machine();
      if (rank_ < peer) send(out, peer);
      receive(in, peer);
      if (rank_ > peer) send(out, peer);
      if (i > 0) times.push_back(seconds_of_this_machine() - begin);
    }
    return times;
  }

  // What each rank knows of a table, others zero, becomes what all know.
  void share(at::Tensor table) {
    at::Tensor copy = table.to(group_.device());
    group_.all_reduce(copy)->wait();
    table.copy_(copy.to(at::kCPU));
  }

  void measure_pairs(LinkReport* report) {
    at::Tensor table = at::zeros({size_, size_, 2}, at::kDouble);
    for (int64_t first = 0; first < size_; ++first) {
      for (int64_t second = first + 1; second < size_; ++second) {
        if (rank_ == first || rank_ == second) {
          int64_t peer = rank_ == first ? second : first;
          auto small = round_trips(peer, 8, options_.small_round_trips);
          auto large = round_trips(peer, kLargeBytes, options_.large_round_trips);
          if (rank_ == first) {
            table[first][second][0] = *std::min_element(small.begin(), small.end()) / 2;
            table[first][second][1] = 2.0 * kLargeBytes / *std::min_element(large.begin(), large.end());
          }
        }
        group_.barrier();
      }
    }
    share(table);
    for (int64_t first = 0; first < size_; ++first)
      for (int64_t second = first + 1; second < size_; ++second)
        report->pairs.push_back({first, second, table[first][second][0].item<double>(), table[first][second][1].item<double>()});
  }

  // Cristian's algorithm: the peer's clock is read half-way through the shortest round trip.
  void measure_clocks(LinkReport* report) {
    at::Tensor table = at::zeros({2, size_}, at::kDouble);
    at::Tensor time = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(group_.device()));
    for (int64_t peer = 1; peer < size_; ++peer) {
      double best = INFINITY;
      for (int64_t i = 0; i < options_.small_round_trips; ++i) {
        if (rank_ == 0) {
          double begin = now_();
          send(time, peer);
          receive(time, peer);
          double end = now_();
          if (end - begin >= best) continue;
          best = end - begin;
          table[0][peer] = time.item<double>() - (begin + end) / 2;
          table[1][peer] = best / 2;
        } else if (rank_ == peer) {
          receive(time, 0);
          time.fill_(now_());
          send(time, 0);
        }
      }
    }
    share(table);
    for (int64_t rank = 0; rank < size_; ++rank) {
      report->clock_seconds.push_back(table[0][rank].item<double>());
      report->clock_error_seconds.push_back(table[1][rank].item<double>());
    }
  }

  void call(const std::string& operation, const at::Tensor& whole, const at::Tensor& part) {
    if (operation == "all_reduce") arrive(group_.all_reduce(whole), whole);
    else if (operation == "all_gather") arrive(group_.all_gather(whole, part), whole);
    else arrive(group_.reduce_scatter(part, whole), part);
  }

  CollectiveMeasure measure_collective(const std::string& operation, int64_t bytes) {
    int64_t of_one = std::max<int64_t>(1, bytes / 4 / size_);  // a multiple of the ranks: nothing is left over
    at::Tensor whole = floats(of_one * size_), part = floats(of_one);
    std::vector<double> times;
    for (int64_t i = 0; i <= options_.collective_rounds; ++i) {
      group_.barrier();
      double begin = seconds_of_this_machine();
      call(operation, whole, part);
      if (i > 0) times.push_back(seconds_of_this_machine() - begin);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
    at::Tensor slowest = at::full({1}, times[times.size() / 2], at::TensorOptions().dtype(at::kDouble).device(group_.device()));
    group_.all_reduce(slowest, ReduceOp::kMax)->wait();
    return {operation, whole.numel() * 4, slowest.item<double>()};
  }

  ProcessGroup& group_;
  int64_t rank_, size_;
  LinkTestOptions options_;
  std::function<double()> now_;
};

}  // namespace

LinkReport test_links(Mesh& mesh, const LinkTestOptions& options, const std::function<double()>& now) {
  if (mesh.world().size() == 1) return {{}, {}, {0}, {0}};
  auto wall_clock = [] { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); };
  return LinkTest(mesh, options, now ? now : wall_clock).run();
}

LinkReport compare_clocks(Mesh& mesh, int64_t round_trips, const std::function<double()>& now) {
  if (mesh.world().size() == 1) return {{}, {}, {0}, {0}};
  LinkTestOptions options;
  options.small_round_trips = round_trips;
  return LinkTest(mesh, options, now).clocks();
}

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own) {
  if (group.size() == 1) return {own};
  auto on_device = [&](at::ScalarType type) { return at::TensorOptions().dtype(type).device(group.device()); };
  auto length = static_cast<int64_t>(own.size());
  at::Tensor lengths = at::zeros({group.size()}, on_device(at::kLong));
  group.all_gather(lengths, at::full({1}, length, on_device(at::kLong)))->wait();
  lengths = lengths.to(at::kCPU);
  int64_t longest = std::max<int64_t>(1, lengths.max().item<int64_t>());
  at::Tensor bytes = at::zeros({longest}, at::kByte), all = at::zeros({group.size() * longest}, on_device(at::kByte));
  std::memcpy(bytes.data_ptr(), own.data(), own.size());
  group.all_gather(all, bytes.to(group.device()))->wait();
  all = all.to(at::kCPU);
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < group.size(); ++rank)
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + rank * longest, static_cast<size_t>(lengths[rank].item<int64_t>()));
  return texts;
}

}  // namespace plait
