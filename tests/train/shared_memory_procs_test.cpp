// Ranks as processes, whose gradients, partial sums and borders lie in memory that the others read, train bit for bit as ranks in threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "plait/base/random.h"
#include "plait/comm/launch.h"
#include "plait/comm/shared_buffer.h"
#include "plait/tensor/allocator.h"
#include "tests/comm/process_ranks.h"
#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

constexpr int kSteps = 3, kMostRanks = 8;
constexpr int64_t kMostFloats = 1 << 19;

// Large enough that borders, partial sums and buckets are read in place.
ModelShape wide_shape() {
  ModelShape shape = t0b_shape(2);
  shape.hidden_size = 128;
  shape.head_size = 16;
  shape.ffn_size = 256;
  shape.max_positions = 128;
  return shape;
}

Samples long_samples() {
  Samples samples;
  uint64_t k = 0;
  for (int64_t row = 0; row < 16; ++row) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < 90 + row % 3; ++i) ids.push_back(static_cast<int32_t>(mix64(k++) % 61));
    samples.ids.push_back(ids);
  }
  return samples;
}

// What a rank was after its steps.
struct Trained {
  double losses[kSteps];
  int64_t num_floats;
  float masters[kMostFloats];
};

// Descriptors of memory that this process lends.
int64_t lent_buffers() {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(entry.path(), gone).string().find("memfd:plait") != std::string::npos;
  }
  return count;
}

bool in_shared_memory(const void* data) {
  std::ifstream maps("/proc/self/maps");
  const auto at = reinterpret_cast<uintptr_t>(data);
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (at >= begin && at < end) return line.find("memfd:plait") != std::string::npos;
  }
  return false;
}

Config config_for(const MeshLayout& layout) {
  Config config = parity_config(DType::kFloat32, OptimizerKind::kAdamW, 1.0);
  DistributedConfig& d = config.train.distributed;
  d.data_parallel_size = layout.dp_size;
  d.model_parallel_size = layout.tp_size;
  d.pipeline_parallel_size = layout.pp_size;
  d.bucket_size_bytes = 256 << 10;
  d.gradient_accumulation_steps = 2;
  config.train.batch_size = 16;
  return config;
}

void train(Mesh& mesh, bool shared, Trained* out) {
  const Config config = config_for(mesh.layout());
  const Samples samples = long_samples();
  auto model = parallelize(config, wide_shape(), HeadOptions{config.task, 0, 0}, mesh, at::kCPU, {.all_random = true});
  TrainStep step(config, *model, mesh, kSteps);
  if (shared && mesh.layout().dp_size > 1 && !in_shared_memory(model->store.flat_gradients().const_data_ptr()))
    throw std::runtime_error("gradients lie elsewhere");
  const int64_t before = lent_buffers();
  for (int now = 0; now < kSteps; ++now)
    out->losses[now] = step.run({own_micro_batches(samples, config, mesh), count_all_targets(samples, config.task), now}).loss;
  const bool sends_borders = mesh.coordinate().pp + 1 < mesh.layout().pp_size;
  if (shared && (sends_borders || mesh.layout().tp_size > 1) && lent_buffers() == before) throw std::runtime_error("nothing was lent");
  at::Tensor masters = model->store.flat_masters();
  if (masters.numel() > kMostFloats) throw std::runtime_error("too large");
  out->num_floats = masters.numel();
  std::memcpy(out->masters, masters.const_data_ptr(), masters.nbytes());
}

void expect_fine(const std::vector<ProcessResult>& results) {
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i].exit_code, 0) << "rank " << i << " signal " << results[i].signal << ": " << results[i].message;
}

TEST(SharedMemory, ProcessesTrainAsThreads) {
  const size_t bytes = sizeof(Trained) * kMostRanks * 2;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* in_processes = static_cast<Trained*>(memory);
  Trained* in_threads = in_processes + kMostRanks;
  for (const MeshLayout& layout : {grid(2, 1, 1), grid(1, 2, 1), grid(1, 1, 2), grid(2, 2, 2)}) {
    const auto n = static_cast<int>(layout.world_size());
    Listener listener;
    expect_fine(run_processes(
        n,
        [&](int rank) {
          at::set_num_threads(1);
          auto options = options_of(rank, n, listener, std::chrono::seconds(60));
          options.backend = "shm";
          auto mesh = connect_mesh(layout, options);
          train(*mesh, true, &in_processes[rank]);
          mesh->world().barrier();
        },
        std::chrono::seconds(120)));
    expect_fine(run_processes(
        1, [&](int) { run_thread_ranks(layout, [&](Mesh& mesh) { train(mesh, false, &in_threads[mesh.rank()]); }); },
        std::chrono::seconds(120)));
    for (int rank = 0; rank < n; ++rank) {
      const Trained &a = in_processes[rank], &b = in_threads[rank];
      EXPECT_GT(a.num_floats, 0);
      ASSERT_EQ(a.num_floats, b.num_floats);
      EXPECT_LT(a.losses[kSteps - 1], a.losses[0]);
      EXPECT_EQ(std::memcmp(a.losses, b.losses, sizeof a.losses), 0) << name_of(layout) << " rank " << rank;
      EXPECT_EQ(std::memcmp(a.masters, b.masters, static_cast<size_t>(a.num_floats) * sizeof(float)), 0)
          << name_of(layout) << " rank " << rank;
    }
  }
  ::munmap(memory, bytes);
}

// What a run reports as its memory is the same whether gradients lie in memory that the others read or in the rank's own.
TEST(SharedMemory, GradientsCountWhereverTheyLie) {
  struct Counted {
    int64_t of_tensor, of_model, gradients, left;
  };
  void* memory = ::mmap(nullptr, 4 * sizeof(Counted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* counted = static_cast<Counted*>(memory);  // [backend][rank]
  const MeshLayout layout = grid(2, 1, 1);
  for (int shared = 0; shared < 2; ++shared) {
    Listener listener;
    expect_fine(run_processes(
        2,
        [&](int rank) {
          at::set_num_threads(1);
          install_caching_allocator();
          auto options = options_of(rank, 2, listener, std::chrono::seconds(60));
          options.backend = shared ? "shm" : "gloo";
          auto mesh = connect_mesh(layout, options);
          Counted& own = counted[2 * shared + rank];
          const int64_t before = memory_stats().live_bytes;
          at::Tensor tensor = shared_zeros(mesh->data(), 100000, at::kFloat);
          if (in_shared_memory(tensor.const_data_ptr()) != (shared == 1)) throw std::runtime_error("lies elsewhere");
          own.of_tensor = memory_stats().live_bytes - before;
          if (memory_stats().peak_bytes < before + own.of_tensor) throw std::runtime_error("peak");
          tensor.reset();
          const Config config = config_for(layout);
          auto model = parallelize(config, wide_shape(), HeadOptions{config.task, 0, 0}, *mesh, at::kCPU, {.all_random = true});
          own.of_model = memory_stats().live_bytes - before;
          own.gradients = static_cast<int64_t>(model->store.flat_gradients().nbytes());
          model.reset();
          own.left = memory_stats().live_bytes - before;
          mesh->world().barrier();
        },
        std::chrono::seconds(120)));
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Counted &gloo = counted[rank], &shm = counted[2 + rank];
    EXPECT_EQ(shm.of_tensor, 400000);
    EXPECT_EQ(gloo.of_tensor, 400000);
    EXPECT_GT(shm.gradients, 100000);
    EXPECT_EQ(shm.gradients, gloo.gradients);
    EXPECT_NEAR(static_cast<double>(shm.of_model), static_cast<double>(gloo.of_model), 0.1 * static_cast<double>(shm.gradients));
    EXPECT_LT(shm.left, shm.gradients / 10);
  }
  ::munmap(memory, 4 * sizeof(Counted));
}

}  // namespace
}  // namespace plait::testing
