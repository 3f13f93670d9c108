// plait_bench_collectives: one rank (threads: all ranks) of plait's process groups, measured by collectives.py.
//   plait_bench_collectives BACKEND SIZE CONTROL_SOCKET PORT [RANK]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdio>

#include "benchmarks/collectives/bench_rank.h"
#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "plait/comm/shared_buffer.h"
#include "plait/tensor/allocator.h"

namespace plait {
namespace {

class MeshBackend : public bench::Backend {
 public:
  explicit MeshBackend(Mesh& mesh) : group_(mesh.world()) {}
  int rank() const override { return static_cast<int>(group_.rank()); }
  int size() const override { return static_cast<int>(group_.size()); }
  void resize(int64_t n) override {
    // As the gradients of a training run: shared with the ranks that read them where the backend can do that.
    first_ = shared_zeros(group_, n, at::kFloat);
    second_ = shared_zeros(group_, n, at::kFloat);
    host_first_ = first_.to(at::kCPU);
    host_second_ = second_.to(at::kCPU);
  }
  float* first() override { return host_first_.data_ptr<float>(); }
  float* second() override { return host_second_.data_ptr<float>(); }
  void all_reduce(int64_t n) override { group_.all_reduce(first_.narrow(0, 0, n))->wait(); }
  void all_gather(int64_t n) override { group_.all_gather(second_.narrow(0, 0, n), first_.narrow(0, 0, n / size()))->wait(); }
  void reduce_scatter(int64_t n) override { group_.reduce_scatter(second_.narrow(0, 0, n / size()), first_.narrow(0, 0, n))->wait(); }
  void broadcast(int64_t n) override { group_.broadcast(first_.narrow(0, 0, n), 0)->wait(); }
  void ring(int64_t n) override {
    auto sent = group_.send(first_.narrow(0, 0, n), (rank() + 1) % size(), 1);
    auto received = group_.recv(second_.narrow(0, 0, n), (rank() + size() - 1) % size(), 1);
    received->wait();
    sent->wait();
  }
  void barrier() override { group_.barrier(); }
  // On the CPU host and device tensors are the same; copying from a device also waits until it is done.
  void upload() override {
    if (on_host()) return;
    first_.copy_(host_first_);
    second_.copy_(host_second_);
  }
  void download() override {
    if (on_host()) return;
    host_first_.copy_(first_);
    host_second_.copy_(second_);
  }

 private:
  bool on_host() const { return group_.device().is_cpu(); }
  ProcessGroup& group_;
  at::Tensor host_first_, host_second_, first_, second_;
};

int number_of(const char* name, const char* other) {
  const char* text = std::getenv(name) ? std::getenv(name) : std::getenv(other);
  if (!text) throw_error(ExitCode::kUsage, "neither ", name, " nor ", other, " is set: start this rank with mpirun");
  return std::atoi(text);
}

void serve_mesh(Mesh& mesh, const std::string& control_path, const std::string& backend) {
  at::NoGradGuard no_grad;
  at::set_num_threads(1);
  MeshBackend bench_backend(mesh);
  bench::Control control(control_path, backend, bench_backend.rank());
  bench::serve(bench_backend, control);
}

int main_of(int argc, char** argv) {
  if (argc < 5) throw_error(ExitCode::kUsage, "usage: plait_bench_collectives BACKEND SIZE CONTROL_SOCKET PORT [RANK]");
  const std::string backend = argv[1], control_path = argv[3];
  const int size = std::atoi(argv[2]);
  const MeshLayout layout{size, 1, 1};
  install_caching_allocator();  // as a training run has it
  if (backend == "threads") {
    run_thread_ranks(
        layout, [&](Mesh& mesh) { serve_mesh(mesh, control_path, backend); }, std::chrono::minutes(60));
    return 0;
  }
  RendezvousOptions options;
  options.backend = backend;
  options.world_size = options.local_world_size = size;
  options.rank = options.local_rank = argc > 5 ? std::atoi(argv[5]) : number_of("OMPI_COMM_WORLD_RANK", "PMI_RANK");
  options.master_port = std::atoi(argv[4]);
  options.listen = options.rank == 0;
  options.secret = "of a benchmark on one machine";
  options.timeout = std::chrono::minutes(10);
  auto mesh = connect_mesh(layout, options);
  serve_mesh(*mesh, control_path, backend);
  mesh->world().barrier();
  return 0;
}

}  // namespace
}  // namespace plait

int main(int argc, char** argv) {
  try {
    return plait::main_of(argc, argv);
  } catch (const plait::Error& error) {
    std::fprintf(stderr, "plait_bench_collectives: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plait_bench_collectives: %s\n", error.what());
    return 1;
  }
}
