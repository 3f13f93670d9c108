// Bodies of the tests of groups over several machines, the same for Gloo and MPI between them. As collective_cases.h.
#pragma once

#include "tests/comm/collective_cases.h"

namespace plait::testing {

// Ranks on machines a, b, a, b, b. Inside the machines in group order, then over the machines; 16-bit types in fp32, rounded once; the same
// bits everywhere.
inline void order_of_sums_case(Mesh& mesh) {
  for (auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (int64_t n : {90, 50001}) {
      auto values = [&](int64_t rank) { return at::sin(at::arange(n, at::kDouble) * (rank + 1)).to(type); };
      auto wide = [&](int64_t rank) { return values(rank).to(at::kFloat); };
      at::Tensor want = ((wide(0) + wide(2)) + ((wide(1) + wide(3)) + wide(4))).to(type);
      at::Tensor got = values(mesh.rank());
      mesh.world().all_reduce(got)->wait();
      require_equal(got, want, cat("sum of ", c10::toString(type)));
      at::Tensor row = at::empty({n}, type), rows = values(mesh.rank()).repeat({5, 1}).contiguous();
      mesh.world().reduce_scatter(row, rows)->wait();
      require_equal(row, want, cat("scattered sum of ", c10::toString(type)));
    }
}

// A message that the next rank waits for while it has a large one to pass on, over every axis's groups.
inline void axes_and_messages_case(Mesh& mesh) {
  for (ProcessGroup* group : {&mesh.data(), &mesh.pipeline(), &mesh.tensor(), &mesh.world()}) {
    all_reduce_case(*group, at::kFloat, {4, 3});
    all_gather_case(*group, at::kBFloat16, {2, 3});
  }
  ProcessGroup& world = mesh.world();
  const int64_t n = world.size(), previous = (mesh.rank() + n - 1) % n;
  at::Tensor large = at::full({1500000}, static_cast<double>(mesh.rank())), got = at::zeros({1500000}), one = at::ones({2000});
  auto sent = world.send(large, (mesh.rank() + 1) % n, 5);
  auto sum = world.all_reduce(one);
  sum->wait();
  world.recv(got, previous, 5)->wait();
  sent->wait();
  require_equal(one, at::full({2000}, static_cast<double>(n)), "sum beside messages");
  require_equal(got, at::full({1500000}, static_cast<double>(previous)), "message");
}

}  // namespace plait::testing
