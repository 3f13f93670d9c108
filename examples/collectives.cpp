// Collectives over the axes of a mesh: four ranks, data 2 x tensor 2, as threads of this one program.
// The same calls work between processes over Gloo or NCCL: replace run_thread_ranks by connect_mesh (plait/comm/launch.h).
#include <ATen/ATen.h>

#include <cstdio>
#include <mutex>

#include "plait/comm/autograd.h"
#include "plait/comm/launch.h"

int main() {
  plait::MeshLayout layout{/*dp_size=*/2, /*pp_size=*/1, /*tp_size=*/2};
  std::mutex printing;

  plait::run_thread_ranks(layout, [&](plait::Mesh& mesh) {
    // Every rank holds its own number; each group sums over its own members.
    auto sum_over = [&](plait::ProcessGroup& group) {
      at::Tensor x = at::full({1}, static_cast<double>(mesh.rank()), at::kFloat);
      group.all_reduce(x)->wait();
      return x.item<float>();
    };
    float world = sum_over(mesh.world()), data = sum_over(mesh.data()), tensor = sum_over(mesh.tensor());

    // Asynchronous: two operations in flight, work in between, then wait.
    at::Tensor a = at::ones({1000}), b = at::full({3}, static_cast<double>(mesh.rank()), at::kFloat);
    auto first = mesh.data().all_reduce(a);
    auto second = mesh.tensor().all_reduce(b, plait::ReduceOp::kMax);
    at::Tensor meanwhile = at::mm(at::ones({8, 8}), at::ones({8, 8}));
    first->wait();
    second->wait();

    // With a backward: every tensor rank computes a part of y from the same x, so the gradient of x is summed over them.
    at::Tensor x = at::ones({2, 3}).requires_grad_(true);
    at::Tensor part = plait::copy_to_tensor_ranks(x, mesh.tensor()) * static_cast<double>(mesh.tensor().rank() + 1);
    at::Tensor y = plait::reduce_from_tensor_ranks(part, mesh.tensor());  // x * (1 + 2)
    y.sum().backward();

    std::lock_guard<std::mutex> lock(printing);
    std::printf("rank %d (%s): sum over world %g, data %g, tensor %g; y %g, gradient %g\n", static_cast<int>(mesh.rank()),
                to_string(mesh.coordinate()).c_str(), world, data, tensor, y.mean().item<double>(), x.grad().mean().item<double>());
  });
  return 0;
}
