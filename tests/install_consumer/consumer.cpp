// Two thread ranks add up their numbers; exit code 0 when the sum is right on both.
#include <ATen/ops/full.h>

#include <atomic>
#include <cstdio>

#include "plait/comm/launch.h"
#include "plait/comm/process_group.h"
#include "plait/plan/mesh_layout.h"

int main() {
  plait::MeshLayout layout;
  layout.dp_size = 2;
  std::atomic<int> right{0};
  plait::run_thread_ranks(layout, [&](plait::Mesh& mesh) {
    at::Tensor number = at::full({3}, static_cast<double>(mesh.rank() + 1), at::kFloat);
    mesh.data().all_reduce(number)->wait();
    if (number.sum().item<float>() == 9.0f) ++right;
  });
  std::printf("%d of 2 ranks have the right sum\n", right.load());
  return right == 2 ? 0 : 1;
}
