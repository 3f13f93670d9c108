// plait_bench_mpi_direct: one rank that calls OpenMPI's own blocking collectives, without anything of plait: what the library gives.
//   mpirun -n SIZE plait_bench_mpi_direct CONTROL_SOCKET
#include <mpi.h>
#include <sys/mman.h>

#include <memory>

#include "benchmarks/collectives/bench_rank.h"

namespace {

class DirectMpi : public bench::Backend {
 public:
  DirectMpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void resize(int64_t n) override {
    first_ = make(n);
    second_ = make(n);
  }
  float* first() override { return first_.get(); }
  float* second() override { return second_.get(); }
  void all_reduce(int64_t n) override { MPI_Allreduce(MPI_IN_PLACE, first(), count(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
  void all_gather(int64_t n) override {
    MPI_Allgather(first(), count(n / size_), MPI_FLOAT, second(), count(n / size_), MPI_FLOAT, MPI_COMM_WORLD);
  }
  void reduce_scatter(int64_t n) override {
    MPI_Reduce_scatter_block(first(), second(), count(n / size_), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void broadcast(int64_t n) override { MPI_Bcast(first(), count(n), MPI_FLOAT, 0, MPI_COMM_WORLD); }
  void ring(int64_t n) override {
    MPI_Sendrecv(first(), count(n), MPI_FLOAT, (rank_ + 1) % size_, 1, second(), count(n), MPI_FLOAT, (rank_ + size_ - 1) % size_, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  using Buffer = std::unique_ptr<float, Free>;
  // In huge pages, as plait's tensors are.
  static Buffer make(int64_t n) {
    constexpr size_t kHugePage = 2 << 20;
    const size_t bytes = (static_cast<size_t>(n) * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage;
    auto* memory = static_cast<float*>(std::aligned_alloc(kHugePage, bytes));
    if (!memory) throw std::runtime_error("out of memory");
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    std::memset(memory, 0, bytes);
    return Buffer(memory);
  }
  static int count(int64_t n) { return static_cast<int>(n); }
  int rank_ = 0, size_ = 1;
  Buffer first_, second_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 0;
  try {
    if (argc < 2) throw std::runtime_error("usage: plait_bench_mpi_direct CONTROL_SOCKET");
    DirectMpi backend;
    bench::Control control(argv[1], "openmpi", backend.rank());
    bench::serve(backend, control);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plait_bench_mpi_direct: %s\n", error.what());
    code = 1;
  }
  if (code == 0) MPI_Finalize();
  return code;
}
